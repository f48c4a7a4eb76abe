package node_test

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// hook is a redis.Hook of the commands that go together. next sends them.
type hook func(ctx context.Context, cmds []redis.Cmder, next func() error) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }
