package fence

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Redis keeps the token of a resource in a key beside the resource's data, on the same Redis, and
// not on the nodes of the lock. It is safe for concurrent use; its zero value is not usable.
//
// The key is `quorumlock_fence:{resource}`, so that a cluster keeps it with the key of the
// resource's name. If the name contains a {, the key is `quorumlock_fence*:resource`.
//
// Each call is one script, so that nothing runs between the check and the write. The server must
// not evict the key (maxmemory-policy noeviction), nor lose it in a failover that the data
// survives. Replication loses it only together with the write of the same script.
type Redis struct {
	client redis.Scripter
	keep   time.Duration
}

// NewRedis returns a fence over the data of client, a client of go-redis. It refuses a pipeline,
// which returns before the tokens are compared. It does no I/O.
//
// keep is how long a token is kept after its last use. It must be longer than any pause of a holder
// and any time without writes to the resource. With 0 a token is kept forever, in one small key for
// each resource.
func NewRedis(client redis.Scripter, keep time.Duration) (*Redis, error) {
	switch {
	case settings.IsNil(client):
		return nil, errs.Misuse("quorumlock: fence: the Redis client is nil: use the client that writes the data")
	case queues(client):
		return nil, errs.Misusef("quorumlock: fence: the Redis client is a %T, which only queues calls: use the client that made it", client)
	case keep < 0 || keep > 0 && keep < time.Millisecond:
		return nil, errs.Misusef("quorumlock: fence: keep is %v: use a millisecond or more, or 0 to keep tokens for ever", keep)
	}
	return &Redis{client, keep}, nil
}

// queues reports whether a client sends calls only with its Exec, as pipelines do.
func queues(client redis.Scripter) bool {
	_, ok := client.(interface {
		Exec(ctx context.Context) ([]redis.Cmder, error)
	})
	return ok
}

// Mark records the token of a new holder; from then on, every lower token is refused. Call it at
// the start of the term. If a higher token was marked, it returns a *[StaleError], which matches
// [ErrStale]; other errors are those of go-redis. A repeated call with the same token succeeds.
// When ctx is done first, the token may or may not be marked.
func (r *Redis) Mark(ctx context.Context, resource string, token uint64) error {
	return r.run(ctx, mark, "1", resource, token, nil, nil).Err()
}

// Set writes value to the key unless the token is stale: a guarded SET. The key expires after ttl,
// or never if ttl is 0. The resource is the key itself. Errors are those of [Redis.Run].
func (r *Redis) Set(ctx context.Context, key string, token uint64, value any, ttl time.Duration) error {
	if ttl < 0 || ttl > 0 && ttl < time.Millisecond {
		return errs.Misusef("quorumlock: fence: the TTL is %v: use a millisecond or more, or 0 for none", ttl)
	}
	return r.run(ctx, set, "0", key, token, []string{key}, []any{value, ttl.Milliseconds()}).Err()
}

// Run runs a guarded script unless the token is stale. keys and args are the script's KEYS and
// ARGV. In a cluster, keys must have the hash tag of the resource. A token that is higher than the
// marked one is marked.
//
// The result is that of your script. If a higher token was marked, the error is a *[StaleError],
// which matches [ErrStale]; if none was, it is [ErrMissing]. In both cases your script did not run.
// Other errors are those of go-redis.
//
// When ctx is done first, the script may or may not run. After a lost reply, go-redis sends the
// call again, so the script may run twice: write it so that this does no harm, or set MaxRetries to
// -1 in the client's options.
func (r *Redis) Run(ctx context.Context, s *Script, resource string, token uint64, keys []string, args ...any) *redis.Cmd {
	return r.run(ctx, s, "0", resource, token, keys, args)
}

// Enter implements [Store] for [Middleware]: it marks the token.
func (r *Redis) Enter(ctx context.Context, resource string, token uint64) (func(), error) {
	return func() {}, r.Mark(ctx, resource, token)
}

func (r *Redis) run(ctx context.Context, s *Script, create, resource string, token uint64, keys []string, args []any) *redis.Cmd {
	failed := func(err error) *redis.Cmd {
		cmd := redis.NewCmd(context.Background())
		cmd.SetErr(err)
		return cmd
	}
	if ctx == nil {
		return failed(fmt.Errorf("quorumlock: fence: %w", quorumlock.ErrNilContext))
	}
	if s == nil || s.script == nil {
		return failed(errs.Misuse("quorumlock: fence: the script is nil: make it with Guard"))
	}
	if err := errs.Join(checkResource(resource), checkToken(token)); err != nil {
		return failed(err)
	}
	keys = append([]string{fenceKey(resource)}, keys...)
	args = append([]any{strconv.FormatUint(token, 10), r.keep.Milliseconds(), create}, args...)
	cmd := s.script.Run(ctx, r.client, keys, args...)
	if err := cmd.Err(); err != nil {
		cmd.SetErr(redisError(err, resource, token))
	}
	return cmd
}

// redisError returns the error of a refusal by the script.
func redisError(err error, resource string, token uint64) error {
	text := err.Error()
	if seen, ok := strings.CutPrefix(text, "FENCESTALE "); ok {
		n, _ := strconv.ParseUint(seen, 10, 64) // the script has checked the number
		return &StaleError{Resource: resource, Token: token, Seen: n}
	}
	switch {
	case strings.HasPrefix(text, "FENCEMISSING "):
		return fmt.Errorf("%w: %q", ErrMissing, resource)
	case strings.HasPrefix(text, "FENCEBROKEN "):
		return fmt.Errorf("quorumlock: fence: the key %q holds something that is no fencing token: delete it, or use another name for the resource", fenceKey(resource))
	}
	return err
}

// fenceKey returns the key of a resource's token.
func fenceKey(resource string) string {
	if strings.Contains(resource, "{") {
		return "quorumlock_fence*:" + resource
	}
	return "quorumlock_fence:{" + resource + "}"
}

// Script is a guarded Lua script, for [Redis.Run]. It is safe for concurrent use; its zero value is
// not usable.
type Script struct{ script *redis.Script }

//go:embed guard.lua
var head string

// Guard returns your script with the check of a fencing token before it. Its KEYS and ARGV are the
// keys and args of [Redis.Run]: the key of the token is hidden. If the token is stale, your script
// does not run. If your script fails, the token stays marked, and its writes before the failure
// stay written, as always in Redis. Guard does no I/O.
func Guard(lua string) *Script {
	return &Script{redis.NewScript(head + `
local refusal = stale()
if refusal then
	return refusal
end
local keys, args = {}, {}
for i = 2, #KEYS do
	keys[i - 1] = KEYS[i]
end
for i = 4, #ARGV do
	args[i - 3] = ARGV[i]
end
local function guarded(KEYS, ARGV)
` + lua + `
end
return guarded(keys, args)
`)}
}

var (
	mark = Guard("return 1")
	set  = Guard(`
if ARGV[2] == '0' then
	return redis.call('SET', KEYS[1], ARGV[1])
end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`)
)
