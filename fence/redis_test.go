package fence_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/fence"
)

func newRedis(t *testing.T) (*fence.Redis, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	f, err := fence.NewRedis(client, 0)
	must(t, err)
	return f, server
}

func TestRedisRefusesStaleTokens(t *testing.T) {
	f, server := newRedis(t)
	ctx := t.Context()
	if err := f.Set(ctx, "x", 5, "early", 0); !errors.Is(err, fence.ErrMissing) {
		t.Errorf("Set of a key that was never marked: %v, want ErrMissing", err)
	}
	for _, token := range []uint64{9, 9, 10} {
		must(t, f.Mark(ctx, "x", token))
	}
	must(t, f.Set(ctx, "x", 10, "ten", 0))
	for name, err := range map[string]error{"Mark": f.Mark(ctx, "x", 9), "Set": f.Set(ctx, "x", 9, "nine", 0)} {
		if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != (fence.StaleError{Resource: "x", Token: 9, Seen: 10}) || !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s with token 9 after 10: %v, want that it is stale", name, err)
		}
	}
	if v, _ := server.Get("x"); v != "ten" {
		t.Errorf("the value is %q, want %q", v, "ten")
	}
	must(t, f.Set(ctx, "x", 11, "eleven", 0)) // a higher token marks itself
	if err := f.Mark(ctx, "x", 10); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Mark with 10 after a Set with 11: %v, want ErrStale", err)
	}
}

// A Lua number cannot tell these tokens apart.
func TestRedisComparesLargeTokensExactly(t *testing.T) {
	f, _ := newRedis(t)
	must(t, f.Mark(t.Context(), "x", math.MaxInt64))
	if err := f.Mark(t.Context(), "x", math.MaxInt64-1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Mark with a token that is lower by one: %v, want ErrStale", err)
	}
	must(t, f.Mark(t.Context(), "y", 99))
	must(t, f.Mark(t.Context(), "y", 100)) // longer, though it sorts before
}

func TestGuardedScriptSeesItsOwnKeysAndArguments(t *testing.T) {
	f, server := newRedis(t)
	must(t, f.Mark(t.Context(), "x", 7))
	script := fence.Guard(`
		redis.call('RPUSH', KEYS[2], ARGV[1], #KEYS, #ARGV)
		return {KEYS[1], ARGV[2]} -- a comment at the end`)
	got, err := f.Run(t.Context(), script, "x", 7, []string{"a", "b"}, "one", 2).StringSlice()
	if err != nil || len(got) != 2 || got[0] != "a" || got[1] != "2" {
		t.Errorf("the script returned %q, %v", got, err)
	}
	if list, _ := server.List("b"); len(list) != 3 || list[0] != "one" || list[1] != "2" || list[2] != "2" {
		t.Errorf("the script has written %q", list)
	}
	if err := f.Run(t.Context(), script, "x", 6, []string{"a", "b"}, "one", 2).Err(); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Run with a stale token: %v, want ErrStale", err)
	}
	if list, _ := server.List("b"); len(list) != 3 {
		t.Errorf("a stale script has written: %q", list)
	}
	if err := f.Run(t.Context(), fence.Guard("return redis.error_reply('MINE and only mine')"), "x", 7, nil).Err(); err == nil || err.Error() != "MINE and only mine" {
		t.Errorf("the error of a script came back as %v", err)
	}
	if err := f.Run(t.Context(), fence.Guard("return false"), "x", 7, nil).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a script that returns nothing: %v, want redis.Nil", err)
	}
}

func TestRedisKeepsTokensAsLongAsSaid(t *testing.T) {
	forever, server := newRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close() //nolint:errcheck // the test has ended
	anHour, err := fence.NewRedis(client, time.Hour)
	must(t, err)
	ctx, key := t.Context(), "quorumlock_fence:{x}"
	must(t, anHour.Mark(ctx, "x", 5))
	if ttl := server.TTL(key); ttl != time.Hour {
		t.Errorf("the token is kept for %v, want an hour", ttl)
	}
	server.FastForward(50 * time.Minute)
	must(t, anHour.Set(ctx, "x", 5, "v", time.Minute))
	if ttl := server.TTL(key); ttl != time.Hour {
		t.Errorf("after a write, the token is kept for %v, want an hour", ttl)
	}
	if ttl := server.TTL("x"); ttl != time.Minute {
		t.Errorf("the value is kept for %v, want a minute", ttl)
	}
	must(t, forever.Mark(ctx, "x", 5))
	if ttl := server.TTL(key); ttl != 0 {
		t.Errorf("the token is kept for %v, want for ever", ttl)
	}
	must(t, forever.Set(ctx, "x", 5, "v", 0))
	if ttl := server.TTL("x"); ttl != 0 {
		t.Errorf("the value is kept for %v, want for ever", ttl)
	}
}

func TestRedisKeyOfATokenGoesWithTheResource(t *testing.T) {
	f, server := newRedis(t)
	must(t, f.Mark(t.Context(), "plain", 1))
	must(t, f.Mark(t.Context(), "{tagged}:x", 1))
	for _, key := range []string{"quorumlock_fence:{plain}", "quorumlock_fence*:{tagged}:x"} {
		if v, err := server.Get(key); v != "1" {
			t.Errorf("%s is %q, %v, want the token", key, v, err)
		}
	}
}

func TestRedisRefusesAKeyThatHoldsSomethingElse(t *testing.T) {
	f, server := newRedis(t)
	must(t, server.Set("quorumlock_fence:{text}", "hello"))
	_, err := server.Lpush("quorumlock_fence:{list}", "hello")
	must(t, err)
	for _, resource := range []string{"text", "list"} {
		err := f.Mark(t.Context(), resource, 7)
		if err == nil || !strings.Contains(err.Error(), "no fencing token") || errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrMissing) {
			t.Errorf("Mark over a %s: %v, want an error of its own", resource, err)
		}
	}
	if v, _ := server.Get("quorumlock_fence:{text}"); v != "hello" {
		t.Errorf("the key is %q now: it must not be touched", v)
	}
}
