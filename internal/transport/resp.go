package transport

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// The limits of one reply. Locks need far less. go-redis has no limits: it allocates what a length announces, and reads
// a line to its end.
const (
	maxLine     = 64 << 10 // bytes of a simple string, an error or a number
	maxReply    = 16 << 20 // bytes of a whole reply, and so of a string in it
	maxElements = 1 << 20  // elements of a reply, those of its arrays, maps and sets together
	maxNesting  = 32       // arrays in arrays, and attributes in a row
)

// replies follows the stream of replies of a server (RESP2 and RESP3). It finds a reply that is too large, or that no
// Redis sends, before go-redis reads it. The bytes may come in pieces of any size. The zero value is at the beginning
// of a reply. It is not safe for concurrent use.
//
// It looks at the first byte and the length of each value and skips the rest. It keeps no bytes but those of a length.
type replies struct {
	at    place
	kind  byte     // of the value that is being read
	line  int      // bytes of the line so far
	skip  int      // bytes to the end of the string
	digit [12]byte // the digits of the length so far
	left  [maxNesting]nest
	depth int // how many of left are in use

	// Of the whole reply, so far.
	size       int   // bytes, those of announced strings included
	elements   int64 // announced
	attributes int
}

// nest is an array, map, set, push or attribute whose elements are being read.
type nest struct {
	left      int
	attribute bool // its end is not the end of a value: the value follows
}

// place says which part of a value the next byte belongs to.
type place uint8

const (
	atStart place = iota
	inLine
	inLength
	inString
)

// scan reads the next bytes of the stream. It returns how many of them are in order, and an error unless all are. After
// an error the stream cannot be read any further. The byte that breaks a limit is never counted as in order.
func (r *replies) scan(b []byte) (n int, err error) {
	for n < len(b) {
		read := 0
		switch r.at {
		case atStart:
			read, err = one(r.begin(b[n]))
		case inLine:
			read, err = r.inLine(b[n:])
		case inLength:
			read, err = one(r.inLength(b[n]))
		case inString:
			read = min(r.skip, len(b)-n)
			if r.skip -= read; r.skip == 0 {
				r.end()
			}
		}
		n += read
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// one returns 1, or 0 after an error: how many bytes a step for one byte has read.
func one(err error) (read int, _ error) {
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// begin reads the first byte of a value, which says what it is.
func (r *replies) begin(c byte) error {
	r.kind, r.line = c, 1
	switch c {
	case '+', '-', ':', '_', ',', '#', '(':
		r.at = inLine
	case '$', '!', '=', '*', '~', '>', '%', '|':
		r.at = inLength
	case 0x15: // the beginning of a TLS alert
		return errors.New("the server answers with TLS: use a rediss:// URL")
	default:
		return fmt.Errorf("the server sent a reply that begins with %q: is it Redis?", c)
	}
	return nil
}

// inLine reads to the end of the line, or of b. The byte after the longest line is an error.
func (r *replies) inLine(b []byte) (read int, err error) {
	room := maxLine - r.line
	if i := bytes.IndexByte(b[:min(len(b), room)], '\n'); i >= 0 {
		r.size += r.line + i + 1
		if err := r.checkSize(); err != nil {
			return i, err
		}
		r.end()
		return i + 1, nil
	}
	if len(b) > room {
		return room, fmt.Errorf("the server sent a line of more than %d bytes: is it Redis?", maxLine)
	}
	r.line += len(b)
	return len(b), nil
}

// inLength reads one byte of a length, up to the end of its line.
func (r *replies) inLength(c byte) error {
	i := r.line - 1
	if c != '\n' {
		if i == len(r.digit) {
			return errLength
		}
		r.digit[i] = c
		r.line++
		return nil
	}
	if i == 0 || r.digit[i-1] != '\r' {
		return errLength
	}
	length, err := strconv.ParseInt(string(r.digit[:i-1]), 10, 64)
	if err != nil || length < -1 || r.digit[0] == '+' {
		return errLength
	}
	r.size += r.line + 1
	if err := r.checkSize(); err != nil {
		return err
	}
	switch r.kind {
	case '$', '!', '=':
		return r.string(length)
	case '%', '|':
		return r.nest(2 * length)
	}
	return r.nest(length)
}

var errLength = errors.New("the server sent a length that is no number, or far too large: is it Redis?")

// string skips a string of that many bytes, and the end of its line. A negative length means null.
func (r *replies) string(length int64) error {
	if length < 0 {
		r.end()
		return nil
	}
	if length > maxReply {
		return fmt.Errorf("the server sent a string of %d bytes, more than %d: is it Redis?", length, maxReply)
	}
	r.at, r.skip = inString, int(length)+2
	r.size += r.skip
	return r.checkSize()
}

// nest begins an array, map, set, push or attribute. A negative length means null.
func (r *replies) nest(elements int64) error {
	attribute := r.kind == '|'
	if attribute {
		if r.attributes++; r.attributes > maxNesting {
			return fmt.Errorf("the server sent a reply with more than %d attributes: is it Redis?", maxNesting)
		}
	}
	if elements <= 0 {
		if r.at = atStart; !attribute {
			r.end()
		}
		return nil
	}
	if r.elements += elements; r.elements > maxElements {
		return fmt.Errorf("the server sent a reply of %d elements, more than %d: is it Redis?", r.elements, maxElements)
	}
	if r.depth == maxNesting {
		return fmt.Errorf("the server sent a reply that is nested more than %d deep: is it Redis?", maxNesting)
	}
	r.left[r.depth] = nest{int(elements), attribute}
	r.depth++
	r.at = atStart
	return nil
}

// end is called at the end of a value, which may be the last element of the values around it.
func (r *replies) end() {
	r.at = atStart
	for r.depth > 0 {
		in := &r.left[r.depth-1]
		if in.left--; in.left > 0 {
			return
		}
		r.depth--
		if in.attribute {
			return
		}
	}
	r.size, r.elements, r.attributes = 0, 0, 0
}

func (r *replies) checkSize() error {
	if r.size > maxReply {
		return fmt.Errorf("the server sent a reply of more than %d bytes: is it Redis?", maxReply)
	}
	return nil
}
