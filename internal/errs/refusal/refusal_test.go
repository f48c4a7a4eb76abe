package refusal_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs/refusal"
)

type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

// The texts are those of Redis 5, 6, 7.0 and 8.0, and of Valkey 9.1.
func TestEachRefusalHasItsKindAndItsFix(t *testing.T) {
	const old = "ERR Error running script (call to f_5b3f): @user_script:71: @user_script: 71: "
	for text, want := range map[string]struct {
		kind refusal.Kind
		fix  string
	}{
		"NOAUTH Authentication required.":                                                                    {refusal.Credentials, "user and password"},
		"WRONGPASS invalid username-password pair or user is disabled.":                                      {refusal.Credentials, "user and password"},
		"ERR invalid password":                                                                               {refusal.Credentials, "user and password"},
		"ERR Client sent AUTH, but no password is set":                                                       {refusal.Credentials, "user and password"},
		"NOPERM User app has no permissions to run the 'evalsha' command":                                    {refusal.Permission, "security.md"},
		"NOPERM User OOM has no permissions to run the 'evalsha' command":                                    {refusal.Permission, "security.md"},
		"NOPERM No permissions to access a channel":                                                          {refusal.Permission, "security.md"},
		"ERR The user executing the script can't run this command or subcommand script: 5b (TIME)":           {refusal.Permission, "security.md"},
		"ERR ACL failure in script: User app has no permissions to run the 'time' command script: 5b (TIME)": {refusal.Permission, "security.md"},
		"ERR ACL failure in script: User app has no permissions to run the 'time' command (TIME)":            {refusal.Permission, "security.md"},
		old + "The user executing the script can't run this command or subcommand":                           {refusal.Permission, "security.md"},
		"ERR the restart guard cannot read INFO: allow the user +info":                                       {refusal.Permission, "+info"},
		"ERR the restart guard cannot use the key quorumlock_age: NOPERM No permissions to access a key":     {refusal.Permission, "~quorumlock_age"},
		"ERR unknown command 'eval', with args beginning with: 'return 1' ":                                  {refusal.Command, "rename-command"},
		"ERR unknown command 'eval'":                                                                         {refusal.Command, "rename-command"},
		"ERR unknown command `EVAL`, with args beginning with: ":                                             {refusal.Command, "rename-command"},
		"ERR Unknown Redis command called from script script: 5b3f, on @user_script:20. (TIME)":              {refusal.Command, "rename-command"},
		"ERR Unknown command called from script (TIME)":                                                      {refusal.Command, "rename-command"},
		"@user_script: 12: Unknown Redis command called from Lua script (TIME)":                              {refusal.Command, "rename-command"},
		"ERR max number of clients reached":                                                                  {refusal.Passing, "maxclients"},
		"DENIED Running in protected mode because protected mode is enabled":                                 {refusal.Passing, "protected-mode"},
		"LOADING Redis is loading the dataset in memory":                                                     {refusal.Passing, "wait"},
		"OOM command not allowed when used memory > 'maxmemory'.":                                            {refusal.Passing, "maxmemory"},
		"MOVED 7 10.0.0.9:6379":                                                                              {refusal.Misplaced, "stand alone"},
		"TRYAGAIN Multiple keys request during rehashing of slot":                                            {refusal.Misplaced, "moved the slot"},
		"ERR Script attempted to access a non local key in a cluster node script: 5b, on @user_script:60.":   {refusal.Stopped, "moved the slot"},
		"ERR Attempted to access a non local key in a cluster node script: on @user_script:60.":              {refusal.Stopped, "moved the slot"},
		"ERR Unable to execute command 'exists' in script because undeclared keys were accessed":             {refusal.Stopped, "moved the slot"},
		"ERR DB index is out of range":                                                                       {refusal.Other, "databases"},
		"ERR the fencing token is not a number: delete redisson_lock_token:{unknown}":                        {refusal.Other, "log"},
		"NOTALOCK OOM": {refusal.Other, "log"},
	} {
		for _, err := range []error{said(text), fmt.Errorf("wrapped: %w", &quorumlock.NodeError{Node: "n", Err: said(text)})} {
			if got, ok := refusal.Of(err); !ok || got.Kind != want.kind || !strings.Contains(got.Fix, want.fix) {
				t.Errorf("%v: %+v, %v, want %+v", err, got, ok, want)
			}
		}
	}
	for _, err := range []error{nil, io.EOF, errors.New("NOPERM"), quorumlock.ErrClosed} {
		if got, ok := refusal.Of(err); ok {
			t.Errorf("%v is no server's error, got %+v", err, got)
		}
	}
}
