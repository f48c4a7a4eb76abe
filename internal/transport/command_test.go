package transport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Arguments of every length are encoded as Redis reads them.
func TestACommandIsSentAsRedisReadsIt(t *testing.T) {
	script := &wire.Script{Source: strings.Repeat("s", 12_345)}
	for _, n := range []int{0, 1, 9, 10, 42, 99, 100, 101, 999, 1000, 123_456} {
		arg, key := strings.Repeat("x", n), strings.Repeat("k", n/2)
		call := wire.NewCall(script, []string{key}, arg, "last")
		c := &command{}
		for range 2 { // it is used again
			c.set(nil, 0, &call)
			want := fmt.Sprintf("*6\r\n$7\r\nevalsha\r\n$40\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$4\r\nlast\r\n", script.SHA(), len(key), key, n, arg)
			if string(c.sent) != want {
				t.Errorf("an argument of %d bytes: %.200q, want %.200q", n, c.sent, want)
			}
			c.sendSource()
			want = fmt.Sprintf("*6\r\n$4\r\neval\r\n$12345\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$4\r\nlast\r\n", script.Source, len(key), key, n, arg)
			if string(c.sent) != want {
				t.Errorf("an argument of %d bytes, with the source: %.200q, want %.200q", n, c.sent, want)
			}
		}
	}
}
