package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

var (
	// errUnsent is the error of a call that was still queued at the end of its limit.
	errUnsent = notSent{errors.New("not sent: the node was not connected to, or did not answer earlier calls, in time")}

	// errStale is the error of a call that the node did not run, on a connection that is unusable
	// now.
	errStale = notSent{errors.New("not run: the connection became unusable before the call could be sent again")}

	// errOvertaken is the error of a call that would run after a later one. Its node is up.
	errOvertaken = overtaken{notSent{errors.New("not run: a later call of the same waiter may have run first")}}

	// errUnasked ends a connection with a reply to no call: other replies may be misassigned too.
	errUnasked = errors.New("the server sent a reply to no call: is it Redis?")
)

// notSent is the error of a call that was not sent, and never will be.
type notSent struct{ error }

// Unwrap returns the reason.
func (e notSent) Unwrap() error { return e.error }

// NotSent marks the error for package wire.
func (notSent) NotSent() {}

// cutOff is the error of calls that may have run in part: their slot moves, or their connection has
// ended for a reason other than silence.
type cutOff struct{ error }

// Unwrap returns the reason.
func (e cutOff) Unwrap() error { return e.error }

// Broken marks the error for package wire.
func (cutOff) Broken() {}

// breaks returns the error of a connection that has ended, marked unless the server was silent.
func breaks(why error) error {
	if why == nil || isTimeout(why) || errors.Is(why, quorumlock.ErrClosed) || errors.Is(why, net.ErrClosed) {
		return why
	}
	return cutOff{why}
}

// overtaken is the error of a call that must not run any more, at a node that is up.
type overtaken struct{ notSent }

// Overtaken marks the error for package client.
func (overtaken) Overtaken() {}

// Failure returns err as an error of this node. A deadline has several forms; late marks one.
func (n *Node) Failure(err error, late bool) *quorumlock.NodeError {
	err = n.namingPassword(withoutArguments(ofServer(ofHandshake(err))))
	if (late || errors.Is(err, os.ErrDeadlineExceeded)) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w: %w", context.DeadlineExceeded, err)
	}
	return &quorumlock.NodeError{Node: n.String(), Err: err}
}

// ofHandshake returns the server's error without go-redis's text around an error of the handshake.
func ofHandshake(err error) error {
	if e, ok := errors.AsType[redis.Error](err); ok && strings.HasPrefix(err.Error(), "redis: Conn is in a bad state: ") {
		return e
	}
	return err
}

// ofServer makes a server's last word before it closed a connection a redis.Error.
func ofServer(err error) error {
	if w, ok := errors.AsType[lastWord](err); ok {
		return spoken{err, newServerError(string(w))}
	}
	return err
}

// spoken is an error with that of the server within it.
type spoken struct {
	error
	said serverError
}

// Unwrap returns both.
func (e spoken) Unwrap() []error { return []error{e.said, e.error} }

// namingPassword adds the reason: a missing password, or refused credentials. A server that
// requires a password may close a connection with many arguments before AUTH.
func (n *Node) namingPassword(err error) error {
	switch said := err.Error(); {
	case strings.Contains(said, "NOAUTH"), strings.Contains(said, "unauthenticated"):
		return fmt.Errorf("the node wants a password: give it in the URL or the client's options: %w", err)
	case n.config.Credentials != nil && strings.Contains(said, "WRONGPASS"):
		return fmt.Errorf("the node refuses the credentials of WithCredentials: return a user and a password that it accepts: %w", err)
	}
	return err
}

// repeated precedes the arguments that a server quotes.
const repeated = ", with args beginning with"

// withoutArguments removes the arguments that a server repeats of an unknown command. Those of AUTH
// and HELLO, which a server may have renamed, contain the password.
func withoutArguments(err error) error {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	said, _, repeats := strings.Cut(e.Error(), repeated)
	if !repeats {
		return err
	}
	return newServerError(said)
}

// answered reports whether err is an error reply: the server was reached, and refuses.
func answered(err error) bool {
	_, ok := err.(redis.Error)
	return ok
}

// serverError is an error from the server. It begins with its code, such as READONLY.
type serverError string

// wrapped matches the error of a command in a script, as servers before Redis 7 wrap it:
//
//	ERR Error running script (call to f_5b3f): @user_script:20: @user_script: 20: -READONLY You ...
//
// A wrapped error without a code does not match.
var wrapped = regexp.MustCompile(`^(?:ERR Error running script \([^)]*\): )?(?:@?user_script: ?[0-9]+: )*-?([A-Z]{2,} .*)$`)

// newServerError returns the error in Redis 7's form: the code of a wrapped error comes first.
func newServerError(said string) serverError {
	return serverError(wrapped.ReplaceAllString(said, "$1"))
}

func (e serverError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (serverError) RedisError() {}

var _ redis.Error = serverError("")

// says reports whether a server's error begins with a word such as READONLY.
func says(err error, word string) bool {
	e, ok := err.(serverError)
	return ok && strings.HasPrefix(strings.TrimPrefix(string(e), "ERR "), word)
}
