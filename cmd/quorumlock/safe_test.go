package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNothingThatIsPrintedControlsATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":           "plain\ttext\n",
		"größer 数":                "größer 数",
		"\x1b[2J":                 `\x1b[2J`,
		"a\u009b31mb":             `a\u009b31mb`,
		"\u202egnp.exe":           `\u202egnp.exe`,
		"bell\a, back\b, del\x7f": `bell\a, back\b, del\x7f`,
		"\r\nline":                "\\r\nline",
		"bad \xff\xfe":            `bad \xff\xfe`,
		"\U000e0041":              `\U000e0041`,
	} {
		var b strings.Builder
		if n, err := (safeWriter{&b}).Write([]byte(in)); n != len(in) || err != nil || b.String() != want {
			t.Errorf("%q comes out as %q, %d, %v; want %q", in, b.String(), n, err, want)
		}
		b.Reset()
		if err := writeJSON(&b, in); err != nil {
			t.Error(err)
		}
		var back string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != strings.ToValidUTF8(in, "\ufffd") && !strings.Contains(in, "\xff") {
			t.Errorf("the JSON of %q is %q, which reads as %q, %v", in, b.String(), back, err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(b.String(), "\n"), func(r rune) bool { return !isSafe(r) }) {
			t.Errorf("the JSON of %q is %q", in, b.String())
		}
	}
}

func TestNamesAreShownAsOneWordOrQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"app:lock:1": "app:lock:1", "größer": "größer", "": `""`, "a b": `"a b"`, `a"b`: `"a\"b"`, `a\b`: `"a\\b"`,
		"a\nb": `"a\nb"`, "\xff": `"\xff"`, "a\u00a0b": `"a\u00a0b"`, "\u202e": `"\u202e"`,
	} {
		if got := shown(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
}
