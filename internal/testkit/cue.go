package testkit

import (
	"bytes"
	"io"
)

// Cue is an output that calls a function before it writes a line with some text.
type Cue struct {
	io.Writer
	Text string
	Do   func()
}

// Write implements io.Writer.
func (c *Cue) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(c.Text)) {
		c.Do()
	}
	return c.Writer.Write(line)
}
