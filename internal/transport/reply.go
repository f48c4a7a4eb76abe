package transport

import (
	"io"
	"slices"
)

// received is a reply as go-redis reads it.
type received struct {
	reply []byte // as the server sent it
	err   error  // of the connection: there is no reply
	done  bool   // there is a reply, or an error
}

// maxKept is how many bytes of a reply are kept. Those of the scripts are far shorter. What is longer cannot be read
// then, but its end is found.
const maxKept = 1 << 20

// renew makes it ready for the next reply.
func (r *received) renew() {
	if cap(r.reply) > 1<<16 {
		r.reply = nil
	}
	r.reply, r.err, r.done = r.reply[:0], nil, false
}

// Write takes a part of the reply.
func (r *received) Write(b []byte) (int, error) {
	if len(r.reply) < maxKept {
		r.reply = append(r.reply, b...)
	}
	return len(b), nil
}

// ReadFrom takes a part of the reply without a buffer in between.
func (r *received) ReadFrom(from io.Reader) (n int64, err error) {
	for {
		if len(r.reply) >= maxKept {
			m, err := io.Copy(io.Discard, from)
			return n + m, err
		}
		r.reply = slices.Grow(r.reply, 64)
		m, err := from.Read(r.reply[len(r.reply):cap(r.reply)])
		r.reply = r.reply[:len(r.reply)+m]
		n += int64(m)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
