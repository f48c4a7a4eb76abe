package transport

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Channels tests whether the user may subscribe to the channels of a lock's waiters and publish on
// them, for a client of that ID. The error is a *[quorumlock.NodeError] with the server's refusal.
// Without an answer it is nil: Channels tests permissions, and not the way to the server. It
// publishes an empty message, which makes a waiter look once more at most.
func (n *Node) Channels(ctx context.Context, client, lock string) error {
	ctx, cancel := context.WithTimeout(ctx, n.config.Timeout)
	defer cancel()
	result := make(chan error, 1)
	if err := n.locks.Go(func() { result <- n.tryChannels(ctx, client, lock) }); err != nil {
		return err
	}
	select {
	case err := <-result:
		if _, said := err.(redis.Error); said { //nolint:errorlint // it is never wrapped
			return n.Failure(err, false)
		}
	case <-ctx.Done():
	}
	return nil
}

func (n *Node) tryChannels(ctx context.Context, client, lock string) (err error) {
	defer func() {
		if r := recover(); r != nil { // go-redis panics at replies that no Redis sends
			err = fmt.Errorf("the server sent a message that cannot be read: is it Redis? (%v)", r)
		}
	}()
	channels, open, publish := []string{wire.WakeChannel(client), wire.UnlockChannel(lock)}, n.client.Subscribe, n.client.Publish
	if n.Sharded() {
		channels, open, publish = []string{wire.ShardWakeChannel(lock, client)}, n.client.SSubscribe, n.client.SPublish
	}
	for _, channel := range channels {
		ps := open(ctx, channel)
		_, err := ps.Receive(ctx)
		_ = ps.Close() // there is nothing left to lose on it
		if err != nil {
			return err
		}
		if err := publish(ctx, channel, "").Err(); err != nil {
			return err
		}
	}
	return nil
}
