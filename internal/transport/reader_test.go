package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
)

func TestRepliesOfRedisPass(t *testing.T) {
	for name, stream := range map[string]string{
		"nothing":                     "",
		"simple":                      "+OK\r\n-ERR no\r\n:1\r\n_\r\n,1.5\r\n#t\r\n(12345678901234567890\r\n",
		"empty lines":                 "+\r\n-\r\n",
		"strings":                     "$5\r\nhello\r\n$0\r\n\r\n$-1\r\n!3\r\nERR\r\n=7\r\ntxt:abc\r\n",
		"a string that looks like it": "$18\r\n*2000000000\r\n+OK\r\n\r\n",
		"arrays":                      "*3\r\n:1\r\n$1\r\na\r\n*0\r\n*-1\r\n*1\r\n*2\r\n:1\r\n*1\r\n+a\r\n",
		"maps and sets":               "%2\r\n+a\r\n:1\r\n+b\r\n~2\r\n:1\r\n:2\r\n%0\r\n~0\r\n",
		"an attribute":                "|1\r\n+ttl\r\n:3600\r\n*2\r\n:1\r\n|1\r\n+a\r\n*1\r\n+b\r\n:2\r\n+OK\r\n",
		"an empty attribute":          "|0\r\n+OK\r\n",
		"an attribute at the end":     "*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n+OK\r\n",
		"messages":                    ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n+OK\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n",
		"the longest line":            "+" + strings.Repeat("a", maxLine-3) + "\r\n+OK\r\n",
		"the longest string":          fmt.Sprintf("$%d\r\n%s\r\n+OK\r\n", maxReply-13, strings.Repeat("a", maxReply-13)),
		"the largest array":           fmt.Sprintf("*%d\r\n%s+OK\r\n", maxElements, strings.Repeat(":1\r\n", maxElements)),
		"the deepest nesting":         strings.Repeat("*1\r\n", maxNesting) + ":1\r\n+OK\r\n",
		"a limit a reply":             strings.Repeat("*1\r\n", maxNesting) + ":1\r\n" + strings.Repeat("*1\r\n", maxNesting) + ":1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, check := range []bool{false, true} {
				r := reader{from: strings.NewReader(stream), check: check}
				passes, err := pass(&r)
				if err != io.EOF || !r.isEmpty() || check && passes != stream {
					t.Errorf("check %v: %.40q passes, %d bytes of %d: %v", check, passes, len(passes), len(stream), err)
				}
			}
		})
	}
}

// pass returns the replies that are read until an error.
func pass(r *reader) (passes string, err error) {
	for {
		if _, err := r.reply(); err != nil {
			return passes, err
		}
		if r.check {
			passes += string(r.buf[r.start:r.at])
		}
	}
}

// No part of an invalid reply comes through.
func TestAReplyThatIsNoneOfRedisIsHeldBack(t *testing.T) {
	for name, tt := range map[string]struct{ stream, want string }{
		"another protocol":          {"HTTP", "begins with 'H'"},
		"a line feed":               {"\r\n", `begins with '\r'`},
		"a TLS alert":               {"\x15\x03", "rediss://"},
		"a huge array":              {"*2000000000\r\n:1", "2000000000 elements"},
		"a huge array in a small":   {"*2\r\n:1\r\n*1048575\r\n", "1048577 elements"},
		"a huge map":                {"%524289\r\n", "1048578 elements"},
		"a huge string":             {"$16777217\r\n", "a string of 16777217 bytes"},
		"strings that add up":       {"*2\r\n$9\r\n123456789\r\n$16777200\r\n", "more than 16777216 bytes"},
		"too deep":                  {strings.Repeat("*1\r\n", maxNesting+1), "more than 32 deep"},
		"too many attributes":       {strings.Repeat("|0\r\n", maxNesting+1), "more than 32 attributes"},
		"a line that is too long":   {"+" + strings.Repeat("a", maxLine), "a line of more than 65536 bytes"},
		"no length":                 {"*\r\n", "no number"},
		"a length without its end":  {"$3\nabc\n", "no number"},
		"a length below none":       {"*-2\r\n", "no number"},
		"a length with a sign":      {"*+2\r\n", "no number"},
		"a stream of a kind of old": {"$?\r\n", "no number"},
		"a long length":             {"*000000000001\r\n", "no number"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, check := range []bool{false, true} {
				r := reader{from: strings.NewReader("+OK\r\n" + tt.stream), check: check}
				passes, err := pass(&r)
				if check && passes != "+OK\r\n" {
					t.Errorf("%.40q passes, %d bytes", passes, len(passes))
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q in it", err, tt.want)
				}
			}
		})
	}
}

// FuzzRepliesComeThroughInPiecesOfAnySize reads a stream in random pieces, into buffers of random
// sizes. The valid bytes come through unchanged, and the verdict is that on the whole stream.
func FuzzRepliesComeThroughInPiecesOfAnySize(f *testing.F) {
	for _, stream := range []string{
		"+OK\r\n:1\r\n", "$5\r\nhello\r\n", "*2\r\n:1\r\n|1\r\n+a\r\n+b\r\n$-1\r\n", "%1\r\n+a\r\n~1\r\n_\r\n", ">2\r\n+a\r\n*-1\r\n", "!3\r\nERR\r\n=5\r\ntxt:a\r\n",
		"*2000000000\r\n", "$16777217\r\n", "|0\r\n|0\r\n", "HTTP/1.1", "$3\nabc", "*1\r\n*1\r\n*1\r\n", "+" + strings.Repeat("a", maxLine),
	} {
		f.Add([]byte(stream), uint64(len(stream)))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		whole := reader{from: bytes.NewReader(stream), check: true}
		passes, want := pass(&whole)
		values := reader{from: bytes.NewReader(stream)}
		if _, err := pass(&values); err.Error() != want.Error() {
			t.Fatalf("read: %v; checked: %v", err, want)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		conn := &pieces{rest: stream, rng: rng}
		b := newGuard(conn)
		b.accepted.Store(true)
		var got []byte
		for {
			p := make([]byte, rng.IntN(2*len(stream)+2))
			k, err := b.Read(p)
			got = append(got, p[:k]...)
			if err == nil {
				continue
			}
			if string(got) != passes || err.Error() != want.Error() {
				t.Fatalf("%q came through, %v; want %q, %v", got, err, passes, want)
			}
			break
		}
		if !conn.closed {
			t.Errorf("not closed, after %v", want)
		}
		if k, err := b.Read(make([]byte, 10)); k > 0 || err == nil {
			t.Errorf("%d bytes more were read, %v", k, err)
		}
	})
}

// pieces is a connection from which a stream comes in random pieces.
type pieces struct {
	net.Conn
	rest   []byte
	rng    *rand.Rand
	closed bool
}

func (c *pieces) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.rng.IntN(len(p)+1))], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *pieces) Close() error {
	c.closed = true
	return errors.New("closing fails")
}

// BenchmarkReplies measures the cost of reading a reply.
func BenchmarkReplies(b *testing.B) {
	for name, reply := range map[string]string{
		"an answer":      "*3\r\n:1\r\n:1790000000000000\r\n:-1\r\n",
		"INFO, 5 KB":     "$5000\r\n" + strings.Repeat("a", 5000) + "\r\n",
		"a queue of 100": "*100\r\n" + strings.Repeat("$50\r\n"+strings.Repeat("a", 50)+"\r\n", 100),
	} {
		b.Run(name, func(b *testing.B) {
			from := strings.NewReader("")
			r := reader{from: from}
			for b.Loop() {
				from.Reset(reply)
				if _, err := r.reply(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
