package scriptmodel

import (
	"strconv"
	"strings"
)

// Lua's numbers are float64s, so these are, too: sums beyond 2^53 are rounded alike.

// noNumber is Lua's error if a script compares or computes with a value that is not a number.
const noNumber failure = "ERR attempt to compute with a value that is not a number"

// text returns ARGV[i], and "" for a missing one.
func (n *Node) text(i int) string {
	if i > len(n.args) {
		return ""
	}
	return n.args[i-1]
}

// number returns ARGV[i] in a sum.
func (n *Node) number(i int) float64 { return must(tonumber(n.args[i-1])) }

// whole returns ARGV[i] as a command reads an integer.
func (n *Node) whole(i int) int64 { return integer(n.args[i-1]) }

func must(v float64, ok bool) float64 {
	if !ok {
		panic(noNumber)
	}
	return v
}

// clock returns the time in ms, as the function of this name in queue.lua does.
func (n *Node) clock() float64 { return float64(n.now.ms()) }

// digits reads a string of digits, short enough to be exact.
func digits(s string) (float64, bool) {
	if len(s) == 0 || len(s) > 15 {
		return 0, false
	}
	var v int64
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		v = v*10 + int64(d)
	}
	return float64(v), true
}

// tonumber is Lua's. It does not know hexadecimal and infinite numbers, which no script writes.
func tonumber(s string) (float64, bool) {
	if v, ok := digits(s); ok {
		return v, true
	}
	s = strings.Trim(s, " \t\n\v\f\r")
	if strings.ContainsAny(s, "_xXpP") { // Go reads more than C does
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}

// appendWhole appends a number in the format %.0f.
func appendWhole(b []byte, v float64) []byte {
	if i := int64(v); float64(i) == v && i != 0 && i < 1<<62 && i > -1<<62 {
		return strconv.AppendInt(b, i, 10)
	}
	return strconv.AppendFloat(b, v, 'f', 0, 64)
}

func whole(v float64) string { return string(appendWhole(make([]byte, 0, 24), v)) }

// space is Lua's %s.
func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// word returns the longest start of s that is ^%S+, which may be empty: then there is no match.
func word(s string) string {
	for i := range len(s) {
		if space(s[i]) {
			return s[:i]
		}
	}
	return s
}

// cut matches ^(%S+) (.*)$.
func cut(s string) (first, rest string, ok bool) {
	first = word(s)
	if first == "" || len(first) == len(s) || s[len(first)] != ' ' {
		return "", "", false
	}
	return first, s[len(first)+1:], true
}

// decimal returns the longest start of s that is ^%d+.
func decimal(s string) string {
	for i := range len(s) {
		if s[i]-'0' > 9 {
			return s[:i]
		}
	}
	return s
}
