package main

import "io"

// stdoutWriter is the tool's own stdout. Its errors are of type *stdoutError.
type stdoutWriter struct{ w io.Writer }

func (s stdoutWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		err = &stdoutError{err}
	}
	return n, err
}

// stdoutError is a failed write to stdout. Its type separates it from the same error of a
// connection to a node.
type stdoutError struct{ err error }

func (e *stdoutError) Error() string { return e.err.Error() }

func (e *stdoutError) Unwrap() error { return e.err }
