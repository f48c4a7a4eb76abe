package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/multilock"
)

type runCommand struct {
	connection
	Names      []string       `arg:"" name:"name" help:"The names of the locks, without the prefix. Of several locks, all are taken or none."`
	TTL        time.Duration  `default:"10s" placeholder:"D" help:"How long the nodes keep the lock if this program dies: at least 1s."`
	Wait       *time.Duration `placeholder:"D" help:"How long to wait for the lock; 0s is --try. Default: until interrupted, or not at all with --every or --at-least."`
	Try        bool           `help:"Do not wait for the lock."`
	Every      time.Duration  `placeholder:"D" help:"The period of a job that several machines start at each tick, and one machine runs: keep the lock for nine tenths of the period after the grant. The lock is kept even if the command ends sooner or fails, but not if the command cannot be started."`
	AtLeast    time.Duration  `placeholder:"D" help:"Like --every, but keep the lock for D. D must be longer than the clock differences and shorter than the period."`
	Release    bool           `name:"release-on-failure" help:"With --every or --at-least: free the lock at once if the command fails, or if a signal to this program stops it, so that another run within the period may succeed."`
	Slots      *int           `placeholder:"K" help:"Take one of K slots: up to K holders at a time. All users of the name must give the same K."`
	Read       bool           `help:"Share the lock with other readers."`
	Grace      *time.Duration `placeholder:"D" help:"The time between SIGTERM and SIGKILL. Default: a quarter of the TTL, which is 2.5s for a TTL of 10s."`
	Label      string         `placeholder:"TEXT" help:"The name of the holder for others. Default: <hostname>-<pid>."`
	Data       string         `placeholder:"TEXT" help:"A text that inspect and others show beside the holder, such as the ID of a job: at most 1024 bytes."`
	Leave      bool           `name:"leave-running" help:"After the command has ended, let its processes continue without the lock."`
	HeldStatus int            `default:"121" placeholder:"N" help:"The exit status if the lock has another holder; 0 makes that a success."`
	Verbose    bool           `short:"v" help:"Log the events of the lock to stderr."`

	command []string // the arguments after the --
}

func (runCommand) manual() manual {
	return manual{
		synopsis: "NAME... [flags] -- COMMAND [ARGUMENT...]",
		description: `Takes the lock, runs the command, and releases the lock when the command and
all of its descendants have ended. The lock is renewed until then.

If the lease cannot be renewed, the command's process group gets SIGTERM, and SIGKILL a grace later.
SIGKILL comes before the end of the lease, so that the command is dead before another holder can
take the lock. With a TTL of 10s, SIGTERM comes about 6.4s after the last renewal, and SIGKILL 2.5s
later, a second before the end of the lease. If the lock is taken away, as by unlock --force, the
grace begins at the next renewal, a third of the TTL later at most.

A second process, the watchdog, enforces this even if this program is stopped or killed. The
watchdog is a process group of its own with the name lease-watchdog. If the watchdog is killed or
stopped, this program takes over. On Linux, processes that left the command's group or session are
ended, too, and the command dies with the watchdog. On other systems only the process group is
ended.

The command can outlive the lease if both processes are stopped or killed at once, if the machine
stalls, or if a process hangs in the kernel. (On Linux the command itself dies when both are killed,
but not its descendants.) Only fencing tokens protect from that: pass QUORUMLOCK_TOKEN to the
resources that the command writes to.

Processes that the command leaves at its end get SIGTERM, and SIGKILL a grace later, before the lock
is released. With --leave-running they continue, such as a daemon that the command has started on
purpose. The lock does not cover them, and may have another holder meanwhile. If the lease cannot be
renewed while the command runs, all of them are ended.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the process group of the
command. While this program waits for the lock, SIGINT, SIGTERM, SIGHUP and SIGQUIT end it. If stdin
is a terminal, the command is in the foreground there; Ctrl-Z does not stop it, because it would
keep the lock. If stdin is redirected, a command that reads from the terminal itself is stopped
until a signal ends it.

With --restart-guard, the program waits for a quarantine to end, even with --try. With --wait D, it
waits for D at most.

A run within a run takes another lock. If it needs the lock of an outer run, it fails at once
instead of waiting for itself. With --slots it waits, since another slot may become free.

Processes that this program inherits through exec, such as those that a shell script has started,
are killed when the command ends.`,
		environment: environment + `

The command has these variables, and the environment of quorumlock:

QUORUMLOCK_NAME        the name of the lock; several are joined by " + "
QUORUMLOCK_TOKEN       the fencing token
QUORUMLOCK_DEADLINE    the end of the lease at the start of the command, in
                       RFC 3339; renewals move it
QUORUMLOCK_SLOT        with --slots: the slot, from 0
QUORUMLOCK_OWNER       the owner, as in inspect
QUORUMLOCK_OUTER_OWNERS  in a run within a run: the owners of the outer ones`,
		statuses: `The status of the command, or 128 plus the number of the signal that ended
it, or:

121  the lock has another holder (--held-status sets another status)
122  no quorum: too few nodes answered, or they are too slow for --ttl
123  the lock was lost, or the lease about to end, and the command was ended
125  quorumlock itself failed, its command line is wrong, or the name is no
     lock or of another kind
126  the command cannot be run
127  the command was not found
130  interrupted while it waited for the lock (128 plus the signal)`,
		examples: `quorumlock run myapp:lock:migrate --wait 1m -- ./migrate up
quorumlock run myapp:lock:report --every 1h --wait 1m --held-status 0 -- ./report
quorumlock run myapp:lock:printer --slots 4 -- sh -c 'print-on $QUORUMLOCK_SLOT'`,
	}
}

// minRunTTL leaves time to end a command before the end of its lease.
const minRunTTL = time.Second

// limits are the times that bound a command under a lease.
type limits struct {
	Margin time.Duration // between the kill of the command and the end of the lease
	Grace  time.Duration // between SIGTERM and the kill
}

func (c *runCommand) limits() (limits, error) {
	l := limits{Margin: min(max(c.TTL/10, 250*time.Millisecond), 2*time.Second), Grace: c.TTL / 4}
	if c.Grace != nil {
		l.Grace = *c.Grace
	}
	if l.Grace < 0 {
		return l, usageError(fmt.Sprintf("run: --grace %v is negative: use a positive duration, or 0s for SIGKILL at once", l.Grace))
	}
	if most := c.TTL/2 - l.Margin; l.Grace > most {
		return l, usageError(fmt.Sprintf("run: --grace %v leaves a lease of --ttl %v no time to be renewed: use at most %v, or a longer TTL", l.Grace, c.TTL, most))
	}
	return l, nil
}

// check refuses flags that cannot work.
func (c *runCommand) check() error {
	switch {
	case len(c.command) == 0:
		return usageError("run: no command: give it after --, such as: quorumlock run myapp:lock:migrate -- ./migrate up")
	case c.TTL < minRunTTL:
		return usageError(fmt.Sprintf("run: --ttl %v is too short to end a command in time: use at least %v", c.TTL, minRunTTL))
	case c.Try && c.Wait != nil && *c.Wait > 0:
		return usageError("run: --try and --wait are both given: use one of them")
	case c.Slots != nil && (*c.Slots < 1 || *c.Slots > settings.MaxPermits):
		return usageError(fmt.Sprintf("run: --slots %d: use 1 to %d, or leave it out for a lock of one holder", *c.Slots, settings.MaxPermits))
	case c.Read && c.Slots != nil:
		return usageError("run: --read and --slots are both given: use one of them")
	case c.Data != "" && (c.Slots != nil || c.Read || len(c.Names) > 1):
		return usageError("run: --data with --slots, --read or several names: leave it out, only a lock of one holder has data")
	case c.Every < 0:
		return usageError(fmt.Sprintf("run: --every %v is negative: use the period of the job", c.Every))
	case c.Every > 0 && c.AtLeast > 0:
		return usageError("run: --every and --at-least are both given: use one of them")
	case c.Release && c.Every == 0 && c.AtLeast == 0:
		return usageError("run: --release-on-failure without --every or --at-least: the lock is released anyway, leave it out")
	case c.Wait != nil && c.kept() > 0 && *c.Wait >= c.kept():
		return usageError(fmt.Sprintf("run: --wait %v outlasts the %v for which the lock is kept, so the command would run again: use a shorter --wait", *c.Wait, c.kept()))
	case c.Wait != nil && c.Every > 0 && *c.Wait >= c.Every-c.kept():
		return usageError(fmt.Sprintf("run: --wait %v is too long for --every %v: after a run that late, the next one would be skipped: use a --wait below %v, or --at-least with a shorter time", *c.Wait, c.Every, c.Every-c.kept()))
	case c.AtLeast < 0:
		return usageError(fmt.Sprintf("run: --at-least %v is negative: use a positive duration", c.AtLeast))
	case c.HeldStatus < 0 || c.HeldStatus > maxCommandStatus:
		return usageError(fmt.Sprintf("run: --held-status %d: use 0 to %d", c.HeldStatus, maxCommandStatus))
	}
	for _, name := range c.Names {
		if err := quorumlock.ValidateName(c.Prefix + name); err != nil {
			return usageError("run: " + err.Error())
		}
		if strings.ContainsFunc(name, unicode.IsControl) {
			return usageError(fmt.Sprintf("run: the name %.80q has a line break or another control character: use one argument for each name", name))
		}
	}
	return nil
}

// locker returns the lock, with its options.
func (c *runCommand) locker(client *cluster) (quorumlock.Locker, error) {
	members := make([]quorumlock.Locker, len(c.Names))
	for i, name := range c.Names {
		switch {
		case c.Slots != nil:
			members[i] = client.Semaphore(name, *c.Slots)
		case c.Read:
			members[i] = client.RWMutex(name).RLocker()
		default:
			members[i] = client.Mutex(name, quorumlock.WithData(c.Data))
		}
	}
	if len(members) == 1 {
		return members[0], nil
	}
	return multilock.New(members)
}

// options returns the options of the lock, for one name or several.
func (c *runCommand) options() []quorumlock.Option {
	opts := []quorumlock.Option{quorumlock.WithTTL(c.TTL)}
	if c.Wait != nil {
		opts = append(opts, quorumlock.WithWait(*c.Wait))
	}
	if c.Verbose {
		opts = append(opts, quorumlock.WithLogger(slog.New(slog.NewTextHandler(safeWriter{notes}, nil))))
	}
	return opts
}

func (c *runCommand) Run(e *env) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	limits, err := c.limits()
	if err != nil {
		return err
	}
	path, err := exec.LookPath(c.command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return cannotRun(err)
	}
	opts := c.options()
	if c.Label != "" {
		opts = append(opts, quorumlock.WithLabel(c.Label))
	}
	client, err := c.dial("run", opts...)
	if err != nil {
		return err
	}
	defer func() {
		if e := client.Close(); e != nil && err == nil {
			err = e
		}
	}()
	lock, err := c.locker(client)
	if err != nil {
		return usageError("run: " + err.Error())
	}
	signals := catchSignals()
	ctx, interrupted := signals.during(e.ctx)
	var lease *quorumlock.Lease
	if err = c.checkNested(ctx, client); err == nil {
		lease, err = c.acquire(ctx, lock)
	}
	if s := interrupted(); s != 0 {
		if err == nil {
			_ = lease.Unlock(e.ctx)
		}
		return &statusError{exitSignal + s, errors.New("interrupted: the command was not run, and all locks are released")}
	}
	if nested, ok := errors.AsType[*statusError](err); ok {
		return nested
	}
	if err != nil {
		return c.notAcquired(err)
	}
	granted := time.Now()
	end, err := hold(lease, signals, job{path: path, args: c.command, env: environ(lease, c.Slots != nil), limits: limits, ttl: c.TTL, leave: c.Leave})
	keep := c.keep(end, granted)
	unlocked := lease.UnlockAfter(context.Background(), keep)
	return outcome(end, err, unlocked, keep > 0)
}

// keep returns how much longer the nodes must keep the lock. It is 0 if the command was not
// started, so that another process runs the job. A command that was told to stop may have ended
// early, whatever its status.
func (c *runCommand) keep(end ending, granted time.Time) time.Duration {
	if !end.started || end.lost || c.Release && (end.status != 0 || end.stopped) {
		return 0
	}
	return max(time.Until(granted.Add(c.kept())), 0)
}

// waits reports whether the command waits for the lock.
func (c *runCommand) waits() bool {
	return !c.Try && (c.Wait == nil && c.kept() == 0 || c.Wait != nil && *c.Wait > 0)
}

// kept returns how long the lock is kept after the grant, at least.
func (c *runCommand) kept() time.Duration { return max(c.AtLeast, c.Every-c.Every/10) }

// extensions is how often acquire extends a lease that is too short to start a command.
const extensions = 3

// quarantineLook is the time between two attempts during a quarantine.
const quarantineLook = 250 * time.Millisecond

// acquire acquires the lock, with a lease that is long enough to start a command.
func (c *runCommand) acquire(ctx context.Context, lock quorumlock.Locker) (lease *quorumlock.Lease, err error) {
	take := lock.Lock
	if !c.waits() {
		take = lock.TryLock
	}
	lease, err = take(ctx)
	// Clients measure the quarantine, and the runs of a job may be the only clients: without this
	// wait, each run would end too soon to measure anything.
	for !c.waits() && errors.Is(err, quorumlock.ErrQuarantined) && pause(ctx, quarantineLook) {
		lease, err = take(ctx)
	}
	if err != nil {
		return nil, err
	}
	// After a handoff the validity is short until the first renewal; over slow nodes it stays
	// short.
	for extended := 0; time.Until(lease.ValidUntil()) < c.TTL*3/4; extended++ {
		began := time.Now()
		if err = lease.Extend(ctx); err != nil {
			return nil, errs.Join(err, lease.Unlock(ctx))
		}
		if extended == extensions-1 {
			slow := fmt.Errorf("the nodes are too slow for --ttl %v: a renewal took %v, so the lease could end before the next one: use a longer --ttl", c.TTL, time.Since(began).Round(time.Millisecond))
			return nil, &statusError{exitNoQuorum, errs.Join(slow, lease.Unlock(ctx))}
		}
	}
	return lease, nil
}

// notAcquired returns the error for a command that was not run.
func (c *runCommand) notAcquired(err error) error {
	if other := otherKind(err); other != nil {
		return &statusError{exitRunFailed, other}
	}
	if _, few := errors.AsType[*quorumlock.QuorumError](err); few {
		return &statusError{exitNoQuorum, err}
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quorumlock.ErrHeld) && c.Wait != nil {
		return &statusError{exitNoQuorum, fmt.Errorf("too few nodes answered within --wait %v: %w", *c.Wait, err)}
	}
	if errors.Is(err, quorumlock.ErrHeld) {
		if c.HeldStatus == 0 {
			return &statusError{0, fmt.Errorf("skipped: %w", err)}
		}
		return &statusError{c.HeldStatus, err}
	}
	return &statusError{exitRunFailed, err}
}

// job is a command to run under a lease.
type job struct {
	path string
	args []string
	env  []string
	limits
	ttl   time.Duration
	leave bool // see start.Leave
}

// ending is the end of a command.
type ending struct {
	started bool          // it was running, however briefly
	status  int           // its exit status, as in a shell
	stopped bool          // it was told to stop
	lost    bool          // it was ended because the lease was lost, or about to end
	why     string        // the cause of its end
	spare   time.Duration // if lost: from the death of the last process to the end of the lease
	left    int           // processes that it left and that were ended
}

// outcome returns the exit status of run. unlocked is the error of the unlock, which had to keep
// the lock if kept is true.
func outcome(end ending, err, unlocked error, kept bool) error {
	switch {
	case err != nil:
		return err
	case end.lost:
		return &statusError{exitLost, fmt.Errorf("the command was ended: %s: its last process was dead %v before the end of the lease", end.why, end.spare.Round(time.Millisecond))}
	case errors.Is(unlocked, quorumlock.ErrLost):
		return &statusError{exitLost, fmt.Errorf("the lock was lost while the command ended with status %d: %w", end.status, unlocked)}
	case unlocked != nil && kept:
		note("the job may run again within its period: %s", errorText(unlocked))
	case unlocked != nil:
		note("the lock may be held until its TTL is over: %s", errorText(unlocked))
	}
	if end.left > 0 {
		note("the command had left processes running: they were ended before the lock was released")
	}
	if end.status == 0 {
		return nil
	}
	return &statusError{end.status, nil}
}

// cannotRun is the error for a command that cannot be run, with the status of a shell.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &statusError{exitNoSuch, fmt.Errorf("run: %w", err)}
	}
	return &statusError{exitCannotRun, fmt.Errorf("run: %w", err)}
}
