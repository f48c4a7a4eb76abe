//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/quorumlock/quorumlock/examples/internal/try"
)

func Example() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt) // so that it never ends the test
	defer signal.Stop(signals)
	try.Main(func() {
		read, write, err := os.Pipe()
		if err != nil {
			fmt.Println(err)
			return
		}
		stdout := os.Stdout
		os.Stdout = write
		var copying sync.WaitGroup
		copying.Go(func() { interruptLeader(read, stdout) })
		main()
		os.Stdout = stdout
		_ = write.Close() // the last line was written
		copying.Wait()
	})
	// Output:
	// I lead
	// drained
	// released: context canceled
}

// interruptLeader forwards the program's output, and interrupts the program, like Ctrl-C, once it
// leads.
func interruptLeader(from io.Reader, to io.Writer) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		fmt.Fprintln(to, lines.Text()) //nolint:errcheck // the test misses it
		if me, err := os.FindProcess(os.Getpid()); err == nil && lines.Text() == "I lead" {
			_ = me.Signal(os.Interrupt)
		}
	}
}
