//go:build unix

package fencing

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// startReplicable starts a redis-server without a disk, and returns its address and its process.
func startReplicable(t *testing.T, args ...string) (addr string, server *exec.Cmd) {
	t.Helper()
	addr, err := freeport.Addr()
	testkit.Must(t, err, "a free port")
	host, port, _ := strings.Cut(addr, ":")
	server = exec.Command("redis-server", append([]string{"--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--repl-diskless-sync-delay", "0"}, args...)...)
	testkit.Must(t, server.Start(), "redis-server")
	t.Cleanup(func() {
		_ = server.Process.Kill() // a frozen one, too
		_ = server.Wait()
	})
	return addr, server
}

// WAIT counts the replicas that have the writes of its own connection. docs/fencing.md calls it after
// Mark, on the connection of Mark: on another connection it answers at once.
func TestWAITCountsTheMarkOfItsOwnConnection(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		require.Skip(t, "QUORUMLOCK_REQUIRE_REDIS", "redis-server is not installed")
	}
	addr, _ := startReplicable(t)
	host, port, _ := strings.Cut(addr, ":")
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 20})
	elsewhere := client.Conn() // its handshake is before all writes: Redis 7.0 counts the writes before a command
	testkit.Must(t, elsewhere.Ping(t.Context()).Err(), "PING")
	other, replica := startReplicable(t, "--replicaof", host, port)
	copies := redis.NewClient(&redis.Options{Addr: other, MaxRetries: 20})
	t.Cleanup(func() { _, _, _ = elsewhere.Close(), client.Close(), copies.Close() })
	stop := time.Now().Add(20 * time.Second)
	for synced := int64(0); synced == 0; { // WAIT itself waits for the replica
		if time.Now().After(stop) {
			t.Fatal("the replica does not come up")
		}
		conn := client.Conn()
		_ = conn.Set(t.Context(), "any", "write", 0).Err()
		synced, _ = conn.Wait(t.Context(), 1, 500*time.Millisecond).Result()
		_ = conn.Close()
	}
	const limit = 300 * time.Millisecond

	conn := client.Conn()
	defer conn.Close() //nolint:errcheck // the test is over
	stock, err := fence.NewRedis(conn, 0)
	testkit.Must(t, err, "NewRedis")
	testkit.Must(t, replica.Process.Signal(syscall.SIGSTOP), "SIGSTOP")
	testkit.Must(t, stock.Mark(t.Context(), "shelf", 7), "Mark")
	n, err := elsewhere.Wait(t.Context(), 1, limit).Result()
	testkit.Must(t, err, "WAIT")
	testkit.Equal(t, n, 1, "control: what another connection counts, though no replica has the mark")
	n, err = conn.Wait(t.Context(), 1, limit).Result()
	testkit.Must(t, err, "WAIT")
	testkit.Equal(t, n, 0, "replicas with the mark, while the replica is frozen")

	testkit.Must(t, replica.Process.Signal(syscall.SIGCONT), "SIGCONT")
	n, err = conn.Wait(t.Context(), 1, 10*time.Second).Result()
	testkit.Must(t, err, "WAIT")
	testkit.Equal(t, n, 1, "replicas with the mark")
	got, err := copies.Get(t.Context(), "quorumlock_fence:{shelf}").Result()
	testkit.Must(t, err, "GET")
	testkit.Equal(t, got, "7", "the token at the replica")
}
