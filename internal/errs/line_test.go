package errs

import (
	"errors"
	"io"
	"testing"
)

func TestJoinIsOneLineOfAllErrors(t *testing.T) {
	long := errors.New("first\r\nsecond\n")
	for _, tt := range []struct {
		errs []error
		want string
	}{
		{[]error{io.EOF, long}, "EOF; first; second"},
		{[]error{nil, errors.Join(io.EOF, long), io.ErrNoProgress}, "EOF; first; second; " + io.ErrNoProgress.Error()},
	} {
		err := Join(tt.errs...)
		if err.Error() != tt.want {
			t.Errorf("got %q, want %q", err, tt.want)
		}
		for _, e := range tt.errs {
			if e != nil && !errors.Is(err, e) {
				t.Errorf("%v is not %v", err, e)
			}
		}
	}
	if err := Join(nil, io.EOF); err != io.EOF { //nolint:errorlint // it is returned as it is
		t.Errorf("one error alone becomes %v", err)
	}
	if err := Join(nil, nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}
