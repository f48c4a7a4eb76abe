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

// stdoutError says that stdout cannot be written to. A connection to a node may fail with the same error.
type stdoutError struct{ err error }

func (e *stdoutError) Error() string { return e.err.Error() }

func (e *stdoutError) Unwrap() error { return e.err }
