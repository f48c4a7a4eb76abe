package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

const stoppedTTL = 2 * time.Second

// hold is the whole of a process that holds a lock on the nodes of these URLs. It says what happens on its standard
// output: that it has the lock; that it writes, at each line of its standard input, with its token; and that it was told of the loss.
func hold(urls string) error {
	var nodes []*node.Node
	for _, u := range strings.Fields(urls) {
		n, err := node.Dial(u)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	c, err := redlock.New(nodes, quorumlock.WithTTL(stoppedTTL))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the process ends
	lease, err := c.Mutex("process").Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("holds", lease.Token())
	context.AfterFunc(lease.Context(), func() {
		fmt.Println("told", errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost))
	})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() { // it is in the midst of its work, and does not look at the lease
		fmt.Println("writes", lease.Token())
	}
	if err := lease.Unlock(context.Background()); !errors.Is(err, quorumlock.ErrLost) {
		return fmt.Errorf("Unlock: %v, want ErrLost", err)
	}
	return in.Err()
}
