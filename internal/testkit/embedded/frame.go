package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// frame is one request or reply, in the Redis serialization protocol.
type frame struct {
	raw  []byte
	args []string // of a request
	at   time.Time
}

// push reports whether a reply was not requested, such as a message on a channel.
func (f frame) push() bool { return f.raw[0] == '>' }

// ran reports whether the reply to a script comes from the script.
func (f frame) ran() bool { return !bytes.HasPrefix(f.raw, []byte("-NOSCRIPT")) }

// Limits: the arguments of a request and the bytes of one, as in Redis, and the bytes of a line.
const (
	maxArgs = 1 << 20
	maxBulk = 512 << 20
	maxLine = 1 << 20
)

// request reads an array of bulk strings.
func (f *frames) request() (frame, error) {
	var q frame
	n, err := f.header(&q, '*', maxArgs)
	if err != nil {
		return q, err
	}
	q.args = make([]string, n)
	for i := range q.args {
		size, err := f.header(&q, '$', maxBulk)
		if err != nil {
			return q, err
		}
		arg, err := f.bulk(&q, size)
		if err != nil {
			return q, err
		}
		q.args[i] = string(arg)
	}
	q.at = f.at
	return q, nil
}

func (f *frames) header(q *frame, kind byte, limit int) (int, error) {
	line, err := f.line(q)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(line[1:])
	if line[0] != kind || err != nil || n < 0 || n > limit {
		return 0, fmt.Errorf("%.80q in place of %q and a number up to %d", line, kind, limit)
	}
	return n, nil
}

func (f *frames) line(q *frame) (string, error) {
	from := len(q.raw)
	for {
		b, err := f.r.ReadSlice('\n')
		q.raw = append(q.raw, b...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
		if len(q.raw)-from > maxLine {
			return "", errors.New("a line without an end")
		}
	}
	if len(q.raw)-from < 3 {
		return "", errors.New("an empty line")
	}
	return string(q.raw[from : len(q.raw)-2]), nil
}

func (f *frames) bulk(q *frame, size int) ([]byte, error) {
	if size < 0 {
		return nil, nil
	}
	from := len(q.raw)
	q.raw = append(q.raw, make([]byte, size+2)...)
	_, err := io.ReadFull(f.r, q.raw[from:])
	return q.raw[from : from+size], err
}

// reply reads a value of any kind, of version 2 or 3 of the protocol.
func (f *frames) reply() (frame, error) {
	var q frame
	err := f.value(&q)
	q.at = f.at
	return q, err
}

func (f *frames) value(q *frame) error {
	line, err := f.line(q)
	if err != nil {
		return err
	}
	if strings.IndexByte("+-:_#,(", line[0]) >= 0 {
		return nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return err
	}
	switch line[0] {
	case '$', '!', '=':
		_, err := f.bulk(q, n)
		return err
	case '%', '|':
		n *= 2
	}
	for range n {
		if err := f.value(q); err != nil {
			return err
		}
	}
	return nil
}
