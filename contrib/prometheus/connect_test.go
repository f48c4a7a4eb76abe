package promlock_test

import (
	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect replaces redlock.Dial(urls): three servers in the process.
func connect(opts ...quorumlock.Option) (client *redlock.Client, stop func()) {
	client, _, stop = locktest.Connect(3, opts...)
	return client, stop
}
