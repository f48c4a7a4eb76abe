package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// notes is a stderr that never blocks: stderr may be a pipe without a reader.
var notes = &patientWriter{lines: make(chan []byte, 100)}

// patientWriter writes in the background. It drops lines while a hundred lines wait.
type patientWriter struct {
	lines   chan []byte
	once    sync.Once
	pending sync.WaitGroup
}

func (w *patientWriter) Write(p []byte) (int, error) {
	w.once.Do(func() {
		go func() {
			for line := range w.lines {
				_, _ = os.Stderr.Write(line)
				w.pending.Done()
			}
		}()
	})
	w.pending.Add(1)
	select {
	case w.lines <- append([]byte(nil), p...):
	default:
		w.pending.Done()
	}
	return len(p), nil
}

// flush waits for the background writes, for a short time at most.
func (w *patientWriter) flush() {
	done := make(chan struct{})
	go func() { w.pending.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// note prints a line on stderr, in the background.
func note(format string, args ...any) {
	_, _ = fmt.Fprintf(safeWriter{notes}, "quorumlock: "+format+"\n", args...)
}
