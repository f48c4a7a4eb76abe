package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// once is a command that go-redis never sends a second time: it retries a lost reply otherwise, and
// the script may have run.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Send runs scripts at the node, all in one round trip, each exactly once, and returns their replies
// in order. It returns at ctx's deadline at the latest, with errors for the calls that are not
// answered: those may or may not have run, or may run still. It need not notice that ctx is cancelled. Every error is a *[quorumlock.NodeError].
func (n *Node) Send(ctx context.Context, calls ...scripts.Call) []scripts.Reply {
	if n.err != nil {
		return n.unanswered(ctx, calls, n.err)
	}
	if n.prompt {
		replies := n.roundTrip(ctx, calls)
		if ctx.Err() != nil && len(calls) > 0 {
			n.connect(calls[0].Keys[0])
		}
		return replies
	}
	answered := make(chan []scripts.Reply, 1)
	err := n.locks.Go(func() { answered <- n.roundTrip(ctx, calls) })
	if err == nil {
		select {
		case replies := <-answered:
			return replies
		case <-ctx.Done(): // the goroutine lasts for as long as the client's own timeouts let it
			err = ctx.Err()
		}
	}
	return n.unanswered(ctx, calls, err)
}

func (n *Node) unanswered(ctx context.Context, calls []scripts.Call, err error) []scripts.Reply {
	replies := make([]scripts.Reply, len(calls))
	for i := range replies {
		replies[i].Err = n.failure(ctx, err)
	}
	return replies
}

// roundTrip asks for the scripts by their SHA, and sends the source of those the node does not know:
// they have not run.
func (n *Node) roundTrip(ctx context.Context, calls []scripts.Call) []scripts.Reply {
	cmds := make([]once, len(calls))
	for i, c := range calls {
		cmds[i] = command(ctx, "evalsha", c.Script.SHA, c)
	}
	n.process(ctx, cmds)

	var unknown []once
	var at []int
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown, at = append(unknown, command(ctx, "eval", calls[i].Script.Source, calls[i])), append(at, i)
		}
	}
	if len(unknown) > 0 {
		n.process(ctx, unknown)
		for i, cmd := range unknown {
			cmds[at[i]] = cmd
		}
	}

	replies := make([]scripts.Reply, len(calls))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			replies[i].Err = n.failure(ctx, err)
			continue
		}
		replies[i].Value = cmd.Val()
	}
	return replies
}

func command(ctx context.Context, verb, script string, c scripts.Call) once {
	args := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	args = append(args, verb, script, len(c.Keys))
	for _, k := range c.Keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.Args...)...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

func (n *Node) process(ctx context.Context, cmds []once) {
	if len(cmds) == 1 {
		_ = n.client.Process(ctx, cmds[0]) // the command keeps its error
		return
	}
	pipe := n.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
}

// failure says what went wrong at this node. A deadline shows up in several guises.
func (n *Node) failure(ctx context.Context, err error) *quorumlock.NodeError {
	err = namingPassword(withoutArguments(err))
	// The connection has the same deadline as ctx, and may come to it first.
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	if late && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w: %w", context.DeadlineExceeded, err)
	}
	return &quorumlock.NodeError{Node: n.name, Err: err}
}

// namingPassword says what is missing where a server may not: one that wants a password cuts off whoever
// sends many arguments without it.
func namingPassword(err error) error {
	if said := err.Error(); strings.Contains(said, "NOAUTH") || strings.Contains(said, "unauthenticated") {
		return fmt.Errorf("the node wants a password: give it in the URL or the client's options: %w", err)
	}
	return err
}

// withoutArguments cuts off what a server repeats of a command that it does not know: those of AUTH
// and HELLO, which it may have by another name, are the password.
func withoutArguments(err error) error {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	said, _, repeats := strings.Cut(e.Error(), ", with args beginning with")
	if !repeats {
		return err
	}
	return errors.New(said)
}
