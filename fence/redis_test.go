package fence_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func newRedis(t *testing.T) (*fence.Redis, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	f, err := fence.NewRedis(client, 0)
	testkit.Must(t, err, "NewRedis")
	return f, server
}

func holds(t *testing.T, server *miniredis.Miniredis, key, want string) {
	t.Helper()
	v, err := server.Get(key)
	testkit.Must(t, err, "Get")
	testkit.Equal(t, v, want, "%s", key)
}

func TestRedisRefusesStaleTokens(t *testing.T) {
	f, server := newRedis(t)
	ctx := t.Context()
	testkit.Is(t, f.Set(ctx, "x", 5, "early", 0), fence.ErrMissing, "Set of a key that was never marked")
	for _, token := range []uint64{9, 9, 10} {
		testkit.Must(t, f.Mark(ctx, "x", token), "Mark")
	}
	testkit.Must(t, f.Set(ctx, "x", 10, "ten", 0), "Set")
	for name, err := range map[string]error{"Mark": f.Mark(ctx, "x", 9), "Set": f.Set(ctx, "x", 9, "nine", 0)} {
		if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != (fence.StaleError{Resource: "x", Token: 9, Seen: 10}) || !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s with token 9 after 10: %v, want that it is stale", name, err)
		}
	}
	holds(t, server, "x", "ten")
	testkit.Must(t, f.Set(ctx, "x", 11, "eleven", 0), "Set") // a higher token marks itself
	testkit.Is(t, f.Mark(ctx, "x", 10), fence.ErrStale, "Mark with 10 after a Set with 11")
}

// A Lua number cannot tell these tokens apart.
func TestRedisComparesLargeTokensExactly(t *testing.T) {
	f, _ := newRedis(t)
	testkit.Must(t, f.Mark(t.Context(), "x", math.MaxInt64), "Mark")
	testkit.Is(t, f.Mark(t.Context(), "x", math.MaxInt64-1), fence.ErrStale, "Mark with a token that is lower by one")
	testkit.Must(t, f.Mark(t.Context(), "y", 99), "Mark")
	testkit.Must(t, f.Mark(t.Context(), "y", 100), "Mark") // longer, though it sorts before
}

func TestGuardedScriptSeesItsOwnKeysAndArguments(t *testing.T) {
	f, server := newRedis(t)
	testkit.Must(t, f.Mark(t.Context(), "x", 7), "Mark")
	script := fence.Guard(`
		redis.call('RPUSH', KEYS[2], ARGV[1], #KEYS, #ARGV)
		return {KEYS[1], ARGV[2]} -- a comment at the end`)
	got, err := f.Run(t.Context(), script, "x", 7, []string{"a", "b"}, "one", 2).StringSlice()
	if err != nil || len(got) != 2 || got[0] != "a" || got[1] != "2" {
		t.Errorf("the script returned %q, %v", got, err)
	}
	list, _ := server.List("b")
	testkit.Equal(t, strings.Join(list, " "), "one 2 2", "the script has written")
	testkit.Is(t, f.Run(t.Context(), script, "x", 6, []string{"a", "b"}, "one", 2).Err(), fence.ErrStale, "Run with a stale token")
	list, _ = server.List("b")
	testkit.Equal(t, len(list), 3, "a stale script has written")
	err = f.Run(t.Context(), fence.Guard("return redis.error_reply('MINE and only mine')"), "x", 7, nil).Err()
	testkit.Equal(t, fmt.Sprint(err), "MINE and only mine", "the error of a script came back as")
	testkit.Is(t, f.Run(t.Context(), fence.Guard("return false"), "x", 7, nil).Err(), redis.Nil, "a script that returns nothing")
}

func TestRedisKeepsTokensAsLongAsSaid(t *testing.T) {
	forever, server := newRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close() //nolint:errcheck // the test has ended
	anHour, err := fence.NewRedis(client, time.Hour)
	testkit.Must(t, err, "NewRedis")
	ctx, key := t.Context(), "quorumlock_fence:{x}"
	testkit.Must(t, anHour.Mark(ctx, "x", 5), "Mark")
	testkit.Equal(t, server.TTL(key), time.Hour, "the token is kept for")
	server.FastForward(50 * time.Minute)
	testkit.Must(t, anHour.Set(ctx, "x", 5, "v", time.Minute), "Set")
	testkit.Equal(t, server.TTL(key), time.Hour, "after a write, the token is kept for")
	testkit.Equal(t, server.TTL("x"), time.Minute, "the value is kept for")
	testkit.Must(t, forever.Mark(ctx, "x", 5), "Mark")
	testkit.Equal(t, server.TTL(key), 0, "the token is kept for ever")
	testkit.Must(t, forever.Set(ctx, "x", 5, "v", 0), "Set")
	testkit.Equal(t, server.TTL("x"), 0, "the value is kept for ever")
}

func TestRedisKeyOfATokenGoesWithTheResource(t *testing.T) {
	f, server := newRedis(t)
	testkit.Must(t, f.Mark(t.Context(), "plain", 1), "Mark")
	testkit.Must(t, f.Mark(t.Context(), "{tagged}:x", 1), "Mark")
	holds(t, server, "quorumlock_fence:{plain}", "1")
	holds(t, server, "quorumlock_fence*:{tagged}:x", "1")
}

func TestRedisRefusesAKeyThatHoldsSomethingElse(t *testing.T) {
	f, server := newRedis(t)
	testkit.Must(t, server.Set("quorumlock_fence:{text}", "hello"), "Set")
	_, err := server.Lpush("quorumlock_fence:{list}", "hello")
	testkit.Must(t, err, "Lpush")
	for _, resource := range []string{"text", "list"} {
		err := f.Mark(t.Context(), resource, 7)
		if err == nil || !strings.Contains(err.Error(), "no fencing token") || errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrMissing) {
			t.Errorf("Mark over a %s: %v, want an error of its own", resource, err)
		}
	}
	holds(t, server, "quorumlock_fence:{text}", "hello") // it is not touched
}
