// Package misuse makes the errors of wrong calls, arguments and options. All of them match quorumlock.ErrMisuse.
package misuse

import (
	"errors"
	"fmt"
)

// Err is quorumlock.ErrMisuse.
var Err = errors.New("quorumlock: wrong use")

// New is errors.New for an error that matches Err.
func New(text string) error { return &wrong{errors.New(text)} }

// Errorf is fmt.Errorf for an error that matches Err.
func Errorf(format string, args ...any) error { return &wrong{fmt.Errorf(format, args...)} }

// wrong adds nothing to the text of its error.
type wrong struct{ error }

func (w *wrong) Is(target error) bool { return target == Err }

func (w *wrong) Unwrap() error { return w.error }
