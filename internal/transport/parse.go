package transport

import (
	"bytes"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// serverError is an error from the server. It begins with its code, such as READONLY.
type serverError string

// wrapped matches the error of a command in a script, as servers before Redis 7 wrap it:
//
//	ERR Error running script (call to f_5b3f): @user_script:20: @user_script: 20: -READONLY You can't write against a read only replica.
//
// A wrapped error without a code does not match.
var wrapped = regexp.MustCompile(`^(?:ERR Error running script \([^)]*\): )?(?:@?user_script: ?[0-9]+: )*-?([A-Z]{2,} .*)$`)

// newServerError returns the error in Redis 7's form: the code of a wrapped error comes first.
func newServerError(said string) serverError {
	return serverError(wrapped.ReplaceAllString(said, "$1"))
}

func (e serverError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (serverError) RedisError() {}

var _ redis.Error = serverError("")

// errGarbled means that a reply cannot be read. What follows it on the connection cannot be trusted either.
var errGarbled = errors.New("the server sent a reply that cannot be read: is it Redis?")

// parseReply reads a whole reply, as the server sent it. The error of the reply is what the server answered. The other
// error says that the reply cannot be read. It keeps nothing of b.
func parseReply(b []byte) (wire.Reply, error) {
	r, rest, err := nextReply(b)
	if err == nil && len(rest) > 0 {
		return wire.Reply{}, errGarbled
	}
	return r, err
}

// nextReply is parseReply for a reply that others may follow.
func nextReply(b []byte) (r wire.Reply, rest []byte, err error) {
	if r, rest, ok := parseIntegers(b); ok {
		return r, rest, nil
	}
	v, rest, err := parseValue(b)
	if err != nil {
		return wire.Reply{}, nil, err
	}
	switch v := v.(type) {
	case serverError:
		return wire.Reply{Err: v}, rest, nil
	case nil:
		return wire.Reply{Err: redis.Nil}, rest, nil
	}
	return wire.Reply{Value: v}, rest, nil
}

// parseIntegers reads a reply of integers, without an allocation: most are.
func parseIntegers(b []byte) (r wire.Reply, rest []byte, ok bool) {
	if len(b) > 0 && b[0] == ':' {
		n, rest, ok := parseInteger(b)
		return wire.Integer(n), rest, ok
	}
	if len(b) < 4 || b[0] != '*' || b[1] < '1' || b[1] > '3' || b[2] != '\r' || b[3] != '\n' {
		return r, nil, false
	}
	var ns [3]int64
	count := int(b[1] - '0')
	b = b[4:]
	for i := range count {
		if ns[i], b, ok = parseInteger(b); !ok {
			return r, nil, false
		}
	}
	return wire.Integers(ns[:count]...), b, true
}

// parseInteger reads `:<n>`, a carriage return and a line feed.
func parseInteger(b []byte) (n int64, rest []byte, ok bool) {
	if len(b) < 4 || b[0] != ':' {
		return 0, nil, false
	}
	i, negative := 1, false
	if b[1] == '-' {
		i, negative = 2, true
	}
	first := i
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		digit := int64(b[i] - '0')
		if n > (math.MaxInt64-digit)/10 {
			return 0, nil, false
		}
		n = n*10 + digit
	}
	if i == first || i+1 >= len(b) || b[i] != '\r' || b[i+1] != '\n' {
		return 0, nil, false
	}
	if negative {
		n = -n
	}
	return n, b[i+2:], true
}

// parseValue reads a value of any kind, of the second or third version of the protocol.
func parseValue(b []byte) (v any, rest []byte, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 || b[end-1] != '\r' {
		return nil, nil, errGarbled
	}
	line, rest := string(b[1:end-1]), b[end+1:]
	switch b[0] {
	case '+', '(':
		return line, rest, nil
	case '-':
		return newServerError(line), rest, nil
	case ':':
		n, err := strconv.ParseInt(line, 10, 64)
		return n, rest, garbled(err)
	case ',':
		f, err := strconv.ParseFloat(line, 64)
		return f, rest, garbled(err)
	case '#':
		return line == "t", rest, nil
	case '_':
		return nil, rest, nil
	}
	n, err := strconv.Atoi(line)
	switch {
	case err != nil:
		return nil, nil, errGarbled
	case n < 0:
		return nil, rest, nil
	}
	switch b[0] {
	case '$', '=', '!':
		return parseString(b[0], n, rest)
	case '*', '~', '>':
		return parseList(n, rest)
	case '%':
		return parseList(2*n, rest)
	case '|': // an attribute, and then the value
		if _, rest, err = parseList(2*n, rest); err != nil {
			return nil, nil, err
		}
		return parseValue(rest)
	}
	return nil, nil, errGarbled
}

func garbled(err error) error {
	if err != nil {
		return errGarbled
	}
	return nil
}

func parseString(kind byte, length int, b []byte) (v any, rest []byte, err error) {
	if len(b) < length+2 {
		return nil, nil, errGarbled
	}
	s, rest := string(b[:length]), b[length+2:]
	switch {
	case kind == '!':
		return newServerError(s), rest, nil
	case kind == '=': // its first four bytes say what it is
		_, s, _ = strings.Cut(s, ":")
	}
	return s, rest, nil
}

func parseList(length int, b []byte) (v any, rest []byte, err error) {
	if length > len(b) { // an element has a byte at least
		return nil, nil, errGarbled
	}
	values := make([]any, length)
	for i := range values {
		if values[i], b, err = parseValue(b); err != nil {
			return nil, nil, err
		}
	}
	return values, b, nil
}

// says reports whether a server's error begins with a word such as READONLY.
func says(err error, word string) bool {
	e, ok := err.(serverError)
	return ok && strings.HasPrefix(strings.TrimPrefix(string(e), "ERR "), word)
}
