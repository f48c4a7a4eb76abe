package engine

import (
	"testing"
	"time"
)

func TestEndedCallsAreRememberedForAWhile(t *testing.T) {
	var e Ended
	for number := range uint64(maxEnded + 3) {
		e.Add(number)
	}
	if e.Has(2) || !e.Has(3) || !e.Has(maxEnded+2) || e.Has(maxEnded+3) {
		t.Error("want exactly the last maxEnded calls")
	}
	for number := range uint64(1000) {
		at := time.Duration(number)
		e.Keep(number, at+10, at)
		if !e.Keeps(number, at+9) || e.Keeps(number, at+10) || e.Keeps(number+1, 0) {
			t.Fatalf("call %d is not kept until exactly its time", number)
		}
	}
	if len(e.kept) > 100 {
		t.Errorf("%d calls are kept, but only 10 are still valid", len(e.kept))
	}
	for number := range uint64(1000) { // none of them expires
		e.Keep(number, time.Hour, 2000)
	}
	if e.sweepAt < 500 {
		t.Errorf("with 1000 live calls, the next sweep is at %d", e.sweepAt)
	}
}
