package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// The limits of one reply. Locks need far less.
const (
	maxLine     = 64 << 10 // bytes of a simple string, an error or a number
	maxReply    = 16 << 20 // bytes of a whole reply, and so of a string in it
	maxElements = 1 << 20  // elements of a reply, those of its arrays, maps and sets together
	maxNesting  = 32       // arrays in arrays, and attributes in a row
	maxLength   = 13       // bytes of a length and its carriage return
)

// reader reads the replies of a server (RESP2 and RESP3) within these limits. It allocates memory
// for bytes that have arrived, not for announced ones. After an error, the stream is of no use. A
// reader is not safe for concurrent use.
type reader struct {
	from  io.Reader
	check bool // replies are checked, and their bytes kept, but no values are made

	buf   []byte
	start int // of the current reply in buf, if check is set
	at    int // the next byte in buf

	// Of the current reply, so far.
	size       int   // bytes, with those of announced strings
	elements   int64 // announced
	attributes int
}

const readBuffer = 8 << 10

// errGarbled means that a reply cannot be read.
var errGarbled = errors.New("the server sent a reply that cannot be read: is it Redis?")

var errLength = errors.New("the server sent a length that is no number, or far too large: is it Redis?")

// reply reads a reply. The error in it is the server's.
func (r *reader) reply() (wire.Reply, error) {
	kind, n, line, err := r.open()
	if err != nil {
		return wire.Reply{}, err
	}
	return r.rest(kind, n, line)
}

// open reads the first line of a reply.
func (r *reader) open() (kind byte, n int64, line []byte, err error) {
	r.start, r.size, r.elements, r.attributes = r.at, 0, 0, 0
	return r.head()
}

// rest reads the rest of a reply. Most replies are integers, and are read without an allocation.
func (r *reader) rest(kind byte, n int64, line []byte) (wire.Reply, error) {
	var v any
	var err error
	switch {
	case kind == ':':
		return wire.Integer(n), nil
	case kind == '*' && 1 <= n && n <= 3:
		r.elements = n
		var ns [3]int64
		for i := range ns[:n] {
			if b, err := r.peek(); err != nil {
				return wire.Reply{}, err
			} else if b != ':' {
				values := make([]any, i, n)
				for k := range values {
					values[k] = ns[k]
				}
				v, err = r.values(values, n, 1)
				return wire.Reply{Value: v}, err
			}
			if _, ns[i], _, err = r.head(); err != nil {
				return wire.Reply{}, err
			}
		}
		return wire.Integers(ns[:n]...), nil
	}
	v, err = r.body(kind, n, line, 0)
	switch v := v.(type) {
	case serverError:
		return wire.Reply{Err: v}, err
	case nil:
		return wire.Reply{Err: redis.Nil}, err
	}
	return wire.Reply{Value: v}, err
}

// head reads the first line of a value: its kind, its length or integer, and the text of any other
// line, which is valid until the next read.
func (r *reader) head() (kind byte, n int64, line []byte, err error) {
	if kind, err = r.peek(); err != nil {
		return 0, 0, nil, err
	}
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		line, err = r.line(maxLine, nil)
		if err == nil && kind == ':' {
			n, err = parseInteger(line)
		}
	case '$', '!', '=', '*', '~', '>', '%', '|':
		if line, err = r.line(maxLength, errLength); err == nil {
			if n, err = parseInteger(line); err != nil || n < -1 {
				err = errLength
			}
		}
	case 0x15: // the beginning of a TLS alert
		err = errors.New("the server answers with TLS: use a rediss:// URL")
	default:
		err = fmt.Errorf("the server sent a reply that begins with %q: is it Redis?", kind)
	}
	return kind, n, line, err
}

// parseInteger is strconv.ParseInt without a string, and without a plus sign.
func parseInteger(b []byte) (int64, error) {
	digits, negative := bytes.CutPrefix(b, []byte("-"))
	if len(digits) == 0 || len(digits) > 18 {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil || b[0] == '+' {
			return 0, errGarbled
		}
		return n, nil
	}
	n := int64(0)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, errGarbled
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

// value reads a value at a depth.
func (r *reader) value(depth int) (any, error) {
	kind, n, line, err := r.head()
	if err != nil {
		return nil, err
	}
	return r.body(kind, n, line, depth)
}

// body reads the rest of a value.
func (r *reader) body(kind byte, n int64, line []byte, depth int) (any, error) {
	switch kind {
	case '+', '(':
		return string(line), nil
	case '-':
		return newServerError(string(line)), nil
	case ':':
		return n, nil
	case ',':
		f, err := strconv.ParseFloat(string(line), 64)
		if err != nil {
			return nil, errGarbled
		}
		return f, nil
	case '#':
		return string(line) == "t", nil
	case '_':
		return nil, nil
	case '$', '=', '!':
		return r.text(kind, n)
	case '%':
		n *= 2
	case '|':
		if r.attributes++; r.attributes > maxNesting {
			return nil, fmt.Errorf("the server sent a reply with more than %d attributes: is it Redis?", maxNesting)
		}
		if _, err := r.list(2*n, depth); err != nil {
			return nil, err
		}
		return r.value(depth)
	}
	return r.list(n, depth)
}

func (r *reader) list(n int64, depth int) (any, error) {
	if n < 0 {
		return nil, nil
	}
	if r.elements += n; r.elements > maxElements {
		return nil, fmt.Errorf("the server sent a reply of %d elements, more than %d: is it Redis?", r.elements, maxElements)
	}
	if n > 0 && depth == maxNesting {
		return nil, fmt.Errorf("the server sent a reply that is nested more than %d deep: is it Redis?", maxNesting)
	}
	return r.values(make([]any, 0, min(n, 64)), n, depth+1)
}

// values appends values until there are n.
func (r *reader) values(values []any, n int64, depth int) (any, error) {
	for i := int64(len(values)); i < n; i++ {
		v, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		if !r.check {
			values = append(values, v)
		}
	}
	return values, nil
}

func (r *reader) text(kind byte, n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	if n > maxReply {
		return nil, fmt.Errorf("the server sent a string of %d bytes, more than %d: is it Redis?", n, maxReply)
	}
	end := int(n) + len("\r\n")
	if err := r.count(end); err != nil {
		return nil, err
	}
	for len(r.buf)-r.at < end {
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	b := r.buf[r.at : r.at+end]
	r.at += end
	switch {
	case string(b[n:]) != "\r\n":
		return nil, errGarbled
	case r.check:
		return nil, nil
	}
	s := string(b[:n])
	switch kind {
	case '!':
		return newServerError(s), nil
	case '=': // its first four bytes are the format
		_, s, _ = strings.Cut(s, ":")
	}
	return s, nil
}

// count counts bytes of the current reply.
func (r *reader) count(n int) error {
	if r.size += n; r.size > maxReply {
		return fmt.Errorf("the server sent a reply of more than %d bytes: is it Redis?", maxReply)
	}
	return nil
}

// peek returns the next byte.
func (r *reader) peek() (byte, error) {
	for r.at == len(r.buf) {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	return r.buf[r.at], nil
}

// line reads a line of at most limit bytes, and returns it without its first byte and its end. The
// error of a longer or a wrong line is wrong, if it is not nil.
func (r *reader) line(limit int, wrong error) ([]byte, error) {
	for seen := 0; ; {
		rest := r.buf[r.at:]
		end := bytes.IndexByte(rest[seen:], '\n')
		if end += seen; end < seen {
			end = len(rest)
		}
		switch {
		case end >= limit && wrong != nil:
			return nil, wrong
		case end >= limit:
			return nil, fmt.Errorf("the server sent a line of more than %d bytes: is it Redis?", limit)
		case end < len(rest):
			r.at += end + 1
			if end < 2 || rest[end-1] != '\r' {
				if wrong == nil {
					wrong = errGarbled
				}
				return nil, wrong
			}
			return rest[1 : end-1], r.count(end + 1)
		}
		seen = end
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads the bytes that have arrived.
func (r *reader) fill() error {
	used := r.at
	if r.check {
		used = r.start
	}
	if used > 0 {
		r.buf = append(r.buf[:0], r.buf[used:]...)
		r.at, r.start = r.at-used, 0
	}
	if len(r.buf) == 0 && cap(r.buf) != readBuffer { // a long reply is over
		r.buf = make([]byte, 0, readBuffer)
	}
	if len(r.buf) == cap(r.buf) {
		r.buf = slices.Grow(r.buf, len(r.buf))
	}
	for range 100 {
		n, err := r.from.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+n]
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// isEmpty reports whether all bytes that were read have been used.
func (r *reader) isEmpty() bool { return r.at == len(r.buf) }
