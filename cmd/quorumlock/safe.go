package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of locks, labels and server texts may contain control sequences. None of these may reach a
// terminal.

// shown formats a text from outside for a line that people read. One plain word is unchanged. Other
// texts, with spaces, quotes, control characters or changes of direction, are quoted like a Go
// string.
func shown(s string) string {
	plain := func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != '"' && r != '\\' }
	if s != "" && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// isSafe reports whether a character cannot control a terminal.
func isSafe(r rune) bool { return r == '\n' || r == '\t' || unicode.IsGraphic(r) }

// safeWriter escapes every character that could control a terminal, as in \x1b: a second defence
// after shown. Each Write must have whole characters.
type safeWriter struct{ w io.Writer }

func (s safeWriter) Write(p []byte) (int, error) {
	if utf8.Valid(p) && bytes.IndexFunc(p, func(r rune) bool { return !isSafe(r) }) < 0 {
		return s.w.Write(p)
	}
	var b strings.Builder
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case isSafe(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		rest = rest[size:]
	}
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeJSON writes a value as JSON on one line. It also escapes characters that could control a
// terminal, such as U+009B, which JSON does not.
func writeJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case isSafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('\n')
	_, err = io.WriteString(w, b.String())
	return err
}
