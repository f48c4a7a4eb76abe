package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

type unlockCommand struct {
	connection
	Name  string  `arg:"" help:"The name of the lock, without the prefix."`
	Force bool    `help:"Required: the lock is freed even if it is held."`
	Owner *string `placeholder:"OWNER" help:"Free only the hold of this owner: the holder, one reader or one slot. quorumlock inspect shows owners."`
	Slot  *int    `placeholder:"N" help:"Free only slot N of a semaphore, from 0."`
	Token *uint64 `placeholder:"TOKEN" help:"Free only the hold with this fencing token. quorumlock inspect shows tokens. Readers have no tokens of their own."`
	Yes   bool    `help:"Do not ask."`
	JSON  bool    `name:"json" help:"Print JSON: the state of the lock before, and whether it was freed. It needs --yes."`
}

func (unlockCommand) manual() manual {
	return manual{
		synopsis: "NAME --force [--owner OWNER] [--slot N] [--token TOKEN] [--yes] [--json] [flags]",
		description: `Frees a lock of any holder, after it has shown the effects and has asked. The
first in the queue gets the lock at once. Of a semaphore it frees all slots. A key that is no lock
stays unchanged.

With --owner, --slot or --token it frees only the hold that matches all of these. If that hold has
ended, it frees nothing and has status 1. Each hold has an owner of its own, so a later hold is not
affected. (Only a thread of a Java client keeps its owner from hold to hold.)

The holder learns of it at its next renewal, within a third of its TTL, and may continue its work
until then. Only a resource that compares fencing tokens refuses its writes in that time. A dead
holder needs no unlock: its lock is free after its TTL, which inspect shows.`,
		environment: environment,
		statuses: `0    freed, or free already
1    it failed, or was not confirmed
2    the command line is wrong
122  no quorum: too few nodes answered, and it may still be held
130  interrupted`,
		examples: `quorumlock unlock myapp:lock:invoice:1042 --force
quorumlock unlock myapp:lock:invoice:1042 --force --token 1764153600123456
quorumlock unlock myapp:pool --force --slot 2`,
	}
}

func (c *unlockCommand) Run(e *env) (err error) {
	if !c.Force {
		return usageError("unlock: it takes the lock away from its holder, who may be at work: use quorumlock inspect to see who that is, and --force to do it")
	}
	if c.JSON && !c.Yes {
		return usageError("unlock: --json cannot ask: give --yes, too")
	}
	switch {
	case c.Owner != nil && *c.Owner == "":
		return usageError("unlock: --owner is empty: use an owner that inspect shows, or leave it out to free all holders")
	case c.Slot != nil && *c.Slot < 0:
		return usageError(fmt.Sprintf("unlock: --slot %d: use 0 or more, or leave it out to free all slots", *c.Slot))
	case c.Token != nil && *c.Token == 0:
		return usageError("unlock: --token 0: use a token that inspect shows, or leave it out to free all holders")
	}
	client, err := c.dial("unlock")
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, client.Close()) }()
	if err := quorumlock.ValidateName(c.Prefix + c.Name); err != nil {
		return usageError("unlock: " + err.Error())
	}
	v, err := client.inspect(e.ctx, c.Name)
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	if err != nil {
		return err
	}
	partly := 0 // at how many nodes the lock is taken
	for _, n := range v.Nodes {
		partly += min(holds(n.State), 1)
	}
	if !c.JSON {
		if err := v.print(e.text); err != nil {
			return err
		}
	}
	var chosen quorumlock.Owner
	if c.chooses() {
		all := c.chosen(v)
		switch {
		case !v.Known:
			return errors.New("too few nodes answered to know who holds it: nothing was freed")
		case len(all) == 0:
			return c.gone()
		case len(all) > 1:
			return usageError(fmt.Sprintf("unlock: %d holds match: give --owner", len(all)))
		}
		chosen = all[0]
	}
	if partly == 0 {
		return c.say(e.text, v, false, "nobody holds it: there is nothing to free\n")
	}
	if !c.JSON {
		if _, err := io.WriteString(e.text, warning(v, chosen)); err != nil {
			return err
		}
	}
	if !c.Yes {
		if err := confirm(e); err != nil {
			return err
		}
	}
	if c.chooses() {
		err = client.ForceUnlockOwner(e.ctx, c.Name, chosen)
	} else {
		err = client.ForceUnlock(e.ctx, c.Name)
	}
	if errors.Is(err, quorumlock.ErrNotHeld) {
		return c.gone()
	} else if err != nil {
		return err
	}
	return c.say(e.text, v, true, "freed\n")
}

// chooses reports whether the flags choose one hold of the lock.
func (c *unlockCommand) chooses() bool { return c.Owner != nil || c.Slot != nil || c.Token != nil }

// chosen returns the holds to free.
func (c *unlockCommand) chosen(v lockView) (all []quorumlock.Owner) {
	add := func(o quorumlock.Owner, slot int, token uint64) {
		if (c.Owner == nil || quorumlock.Owner(*c.Owner) == o) && (c.Slot == nil || *c.Slot == slot) && (c.Token == nil || *c.Token == token) {
			all = append(all, o)
		}
	}
	if v.State.Owner != "" {
		add(v.State.Owner, -1, v.State.Token)
	}
	for _, r := range v.State.Readers {
		add(r.Owner, -1, 0)
	}
	for _, s := range v.State.Slots {
		add(s.Owner, s.Number, s.Token)
	}
	return all
}

// gone is the error for a chosen hold that has ended.
func (c *unlockCommand) gone() error {
	return fmt.Errorf("%w: no hold of %s is the one to free: it has ended, nothing was freed", quorumlock.ErrNotHeld, shown(c.Name))
}

// warning describes the effects of an unlock, of one hold, or of all if one is empty.
func warning(v lockView, one quorumlock.Owner) string {
	var b strings.Builder
	b.WriteString("\nThis takes the lock away from ")
	switch n := len(v.State.Readers) + len(v.State.Slots); {
	case one != "":
		b.WriteString(who(one))
	case n > 1:
		fmt.Fprintf(&b, "%d holders", n)
	case v.holder() == "-":
		b.WriteString("whoever is just taking it")
	default:
		b.WriteString(v.holder())
	}
	b.WriteString(", who may be at work until the next renewal.\n")
	fmt.Fprintf(&b, "A resource that compares fencing tokens refuses what they write once it has seen a token above %d.\n", v.State.Token)
	b.WriteString("Other resources are not protected.\n")
	if v.State.Waiting > 0 {
		fmt.Fprintf(&b, "%d in the queue: the first of them gets the lock at once.\n", v.State.Waiting)
	}
	return b.String()
}

// errNotConfirmed means that nothing was done.
var errNotConfirmed = errors.New("not confirmed: nothing was done")

// confirm asks the user.
func confirm(e *env) error {
	if _, err := fmt.Fprint(e.text, "Type yes to free it: "); err != nil {
		return err
	}
	answers := make(chan string, 1)
	go func() { // a read may block forever: the program ends all the same
		line, _ := bufio.NewReader(io.LimitReader(e.stdin, 1000)).ReadString('\n')
		answers <- strings.TrimSpace(line)
	}()
	select {
	case a := <-answers:
		if a == "yes" {
			return nil
		}
		return errNotConfirmed
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

func (c *unlockCommand) say(w io.Writer, v lockView, freed bool, text string) error {
	if c.JSON {
		return writeJSON(w, struct {
			Freed bool     `json:"freed"`
			Was   lockView `json:"was"`
		}{freed, v})
	}
	_, err := io.WriteString(w, text)
	return err
}
