//go:build unix

package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child is a process of this program in another role.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan string       // closed at the end of its output
	word map[string]string // what it has said, by the first word of the line
}

func startChild(t *testing.T, as string) *child {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := &child{cmd: exec.Command(self), said: make(chan string), word: make(map[string]string)}
	c.cmd.Env = append(os.Environ(), role+"="+as)
	c.cmd.Stderr = t.Output()
	c.in, err = c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	go func() {
		defer close(c.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.said <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // if it has not ended
		for range c.said {
		}
		_ = c.cmd.Wait()
	})
	return c
}

// says waits until the child has said a line that begins with word, and reads the rest of it into to.
func (c *child) says(t *testing.T, word string, to any) {
	t.Helper()
	for limit := time.After(patience); c.word[word] == ""; {
		select {
		case line, ok := <-c.said:
			if !ok {
				t.Fatalf("the process has ended, want it to say %q", word)
			}
			first, rest, _ := strings.Cut(line, " ")
			c.word[first] = rest
		case <-limit:
			t.Fatalf("the process does not say %q", word)
		}
	}
	_, err := fmt.Sscan(c.word[word], to)
	must(t, err)
}

// No lock can stop a holder that is stopped itself, and goes on when its lease is over: the fencing token can.
func TestProcessThatIsStoppedPastItsLeaseIsFencedOffAndToldAtOnce(t *testing.T) {
	needServers(t)
	other := dial(t, five, unhurried)
	urls := make([]string, len(five))
	for i, s := range five {
		urls[i] = s.url()
	}
	var resource store
	now := func() int64 { return 0 } // nobody looks at the history
	c := startChild(t, "hold "+strings.Join(urls, " "))
	var stale uint64
	c.says(t, "holds", &stale)
	isHeld(t, other, "process")
	if _, taken := resource.read(0, stale, now); !taken {
		t.Error("the holder is refused")
	}

	must(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	lease := lock(t, other, "process") // though the process lives, and would renew
	if lease.Token() <= stale {
		t.Errorf("token %d after %d", lease.Token(), stale)
	}
	if _, taken := resource.read(1, lease.Token(), now); !taken {
		t.Error("the second holder is refused")
	}
	_, err := io.WriteString(c.in, "write\n") // the first is just about to
	must(t, err)

	continued := time.Now()
	must(t, c.cmd.Process.Signal(syscall.SIGCONT))
	var token uint64
	var lost bool
	c.says(t, "told", &lost)
	if took := time.Since(continued); took > margin {
		t.Errorf("the process was told of its loss %v after it went on", took)
	}
	c.says(t, "writes", &token)
	if resource.write(0, token, 1, now) {
		t.Errorf("a write with token %d is taken after a read with %d", token, lease.Token())
	}
	if !lost {
		t.Error("the process was told that its lease is over, but not that it is lost")
	}
	if !resource.write(1, lease.Token(), 2, now) {
		t.Error("the write of the second holder is refused")
	}
	must(t, lease.Context().Err())
	must(t, lease.Unlock(t.Context()))
	must(t, c.in.Close())
	for range c.said {
	}
	must(t, c.cmd.Wait())
}
