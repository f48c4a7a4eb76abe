package errs

import "strings"

// Line returns the text of an error in one line: "; " replaces line breaks.
func Line(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Join is errors.Join with a text of one line. It returns a single error unchanged.
func Join(errs ...error) error {
	var all joined
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type joined []error

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = Line(err)
	}
	return strings.Join(texts, "; ")
}

func (j joined) Unwrap() []error { return j }
