package client

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// The kernel reports its uptime, suspends included, in hundredths of a second.
func TestTheBootClockShowsTheKernelsUptime(t *testing.T) {
	boot := bootClock()
	if boot == nil {
		t.Fatal("there is no CLOCK_BOOTTIME")
	}
	before := boot()
	text, err := os.ReadFile("/proc/uptime")
	after := boot()
	if err != nil {
		t.Fatal(err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		t.Fatal(err)
	}
	up := time.Duration(seconds * float64(time.Second))
	if up < before-10*time.Millisecond || up > after {
		t.Errorf("the clock showed %v and then %v, and the kernel said %v in between", before, after, up)
	}
}
