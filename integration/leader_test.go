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
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

const stoppedTTL = 2 * time.Second

// lead is the whole of a process that leads on the nodes of these URLs. Its standard output reports
// that it leads, with its token; that it has learned of the loss; and, for each line of standard
// input, whether its next call reports the loss.
func lead(urls string) error {
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
	e := election.New(c.Mutex("leader"), "first")
	over := errors.New("the input has ended")
	err = e.Run(context.Background(), func(ctx context.Context) error {
		term, _ := election.TermOf(ctx)
		fmt.Println("leads", term.Token())
		context.AfterFunc(ctx, func() { fmt.Println("told", errors.Is(context.Cause(ctx), quorumlock.ErrLost)) })
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println("proclaims", errors.Is(term.Proclaim(context.Background(), "late"), quorumlock.ErrLost))
		}
		_ = c.Close() // it would campaign again
		return over
	})
	if !errors.Is(err, quorumlock.ErrClosed) {
		return fmt.Errorf("Run: %v, want ErrClosed", err)
	}
	return nil
}
