//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestShort(t *testing.T) { try.Short(t) }

func Example() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt) // so that it never ends the test
	defer signal.Stop(signals)
	try.Main(func() {
		go interrupt(os.Args[1:])
		main()
	})
	// Output:
	// I lead
	// drained
	// released: context canceled
}

// interrupt does what Ctrl-C does, when somebody has been leading for a while.
func interrupt(urls []string) {
	client, err := redlock.Dial(urls...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() //nolint:errcheck // it has only looked
	e := election.New(client.Mutex("example:leader"), "an observer")
	for {
		if leader, err := e.Leader(context.Background()); err == nil && leader.Sure {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	if me, err := os.FindProcess(os.Getpid()); err == nil {
		_ = me.Signal(os.Interrupt)
	}
}
