// Package errs makes errors of wrong use, and error texts of one line.
package errs

import (
	"errors"
	"fmt"
)

// ErrMisuse is quorumlock.ErrMisuse.
var ErrMisuse = errors.New("quorumlock: wrong use")

// Misuse is errors.New for an error that matches ErrMisuse.
func Misuse(text string) error { return &wrong{errors.New(text)} }

// Misusef is fmt.Errorf for an error that matches ErrMisuse.
func Misusef(format string, args ...any) error { return &wrong{fmt.Errorf(format, args...)} }

// wrong matches ErrMisuse, and has the text of its error.
type wrong struct{ error }

func (w *wrong) Is(target error) bool { return target == ErrMisuse }

func (w *wrong) Unwrap() error { return w.error }
