package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// notes is stderr for a program that must not wait for it: stderr may be a pipe that nobody reads.
var notes = &patientWriter{lines: make(chan []byte, 100)}

// patientWriter writes in the background. What comes while a hundred writes wait is dropped.
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

// flush waits until all is written, but not for long.
func (w *patientWriter) flush() {
	done := make(chan struct{})
	go func() { w.pending.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// note says something on stderr, in the background.
func note(format string, args ...any) {
	_, _ = fmt.Fprintf(safeWriter{notes}, "quorumlock: "+format+"\n", args...)
}
