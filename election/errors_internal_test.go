package election

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

// Each version of Redis has its own text for a command without permission in a script.
func TestForbiddenCommandsAndWrongKeysAreIncurable(t *testing.T) {
	for _, err := range []error{
		said("NOPERM this user has no permissions to run the 'evalsha' command"),
		said("ERR ACL failure in script: User app has no permissions to run the 'hexists' command script: 0c5, on @user_script:24."),
		said("ERR Error running script (call to 0c5): @user_script:24: The user executing the script can't run this command or subcommand"),
		said("NOPERM No permissions to access a key script: 0c5, on @user_script:24."),
		quorumlock.ErrNotALock,
	} {
		if !isIncurable(&quorumlock.NodeError{Node: "n", Err: err}) {
			t.Errorf("%v counts as curable", err)
		}
	}
	for _, err := range []error{said("LOADING Redis is loading the dataset in memory"), said("OOM command not allowed"), redis.Nil, errors.New("NOPERM")} {
		if isIncurable(&quorumlock.NodeError{Node: "n", Err: err}) {
			t.Errorf("%v counts as incurable", err)
		}
	}
}
