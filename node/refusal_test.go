package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

// The error of a connection that the server refuses includes the server's reason.
func TestWhyAConnectionIsRefusedIsTold(t *testing.T) {
	for name, tt := range map[string]struct{ answer, want string }{
		"too many clients": {"-ERR max number of clients reached\r\n", "ERR max number of clients reached"},
		"protected mode":   {"-DENIED Redis is running in protected mode because " + strings.Repeat("x", 1000) + "\r\n", "DENIED Redis is running in protected mode"},
		"no password":      {"-NOAUTH HELLO must be called with the client already authenticated\r\n", "the node wants a password"},
		"a TLS port":       {"", "rediss://"},
		"a proxy":          {"", "a proxy must support HELLO and CLIENT"},
		"without CLIENT":   {"*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n", "before the reply to CLIENT: a proxy must support HELLO and CLIENT"},
		"echo":             {"-ERR unknown command 'HELLO', with args beginning with: 's3cret'\r\n", "ERR unknown command 'HELLO': "},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			f := &fake{answer: func([]string) string { return tt.answer + hangUp }}
			_, err := dial(t, "redis://:s3cret@h", node.WithDialer(f.dial)).Mutex("x").TryLock(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if _, answered := errors.AsType[redis.Error](err); answered != strings.HasPrefix(tt.answer, "-") {
				t.Errorf("%v is a server's error: %v", err, answered)
			}
		})
	}
}

// A server with too many clients says so before it reads anything. The next write fails.
func TestALastWordIsTheReason(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := &fake{answer: func(args []string) string {
			if strings.EqualFold(args[0], "hello") {
				return "-ERR max number of clients reached\r\n"
			}
			return hangUp
		}}
		_, err := dial(t, "redis://h", node.WithDialer(f.dial)).Mutex("x").TryLock(t.Context())
		says(t, "TryLock", err, "before the reply to CLIENT: ERR max number of clients reached: ")
	})
}

// The error of a call without a connection names an exhausted pool of the client. go-redis's pools
// cannot be in two bubbles.
func TestAPoolThatTheProgramHasUsedUpIsNamed(t *testing.T) {
	server := embedded.Start("node")
	defer server.Close()
	for name, o := range map[string]redis.Options{
		"the client's limit":      {PoolTimeout: time.Millisecond},
		"the call's limit":        {PoolTimeout: time.Second},
		"a client with deadlines": {PoolTimeout: time.Minute, ContextTimeoutEnabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Addr, o.Dialer, o.PoolSize = "10.0.0.1:6379", server.DialContext, 1
			client := redis.NewClient(&o)
			n := over(t, client)
			busy := client.Conn()
			defer busy.Close() //nolint:errcheck // the client is closed next
			testkit.Must(t, busy.Ping(t.Context()).Err(), "Ping")
			_, err := n.Mutex("x", quorumlock.WithNodeTimeout(50*time.Millisecond), quorumlock.WithWait(time.Second)).Lock(t.Context())
			says(t, "Lock", err, "all 1 connections of the client's pool are in use")
		})
	}
}
