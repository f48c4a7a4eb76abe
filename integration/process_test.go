//go:build unix

package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// child is a process of this program in another role.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan string       // lines of its output; closed at the end
	word map[string]string // its output, by the first word of the line
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

// says waits until the child has printed a line that begins with word, and parses the rest into to.
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
