package core

import (
	"slices"
	"time"
)

// renewHanded is the time from a handoff to the first renewal, for the whole TTL. Holds that lack
// cells because slots were contested are renewed as early, to take them. Most holds are shorter.
const renewHanded = 50 * time.Millisecond

// minRetry is the least pause between a failed renewal and the next.
const minRetry = 2 * time.Millisecond

// round is one renewal at all cells. An Extend may begin one while another is under way.
type round struct {
	id         int32
	start      Time // before it was sent: the new validity counts from here
	ttl        time.Duration
	tally      tally // the votes, and the cells without the key
	decided    bool
	unanswered int
}

// hold makes a won attempt a hold, if it has validity left. An Attach also needs time for a
// renewal.
func (m *Machine) hold(now Time) {
	m.start = m.asked
	switch {
	case m.successor:
		m.ttl = m.cfg.HandTTL
	case m.cfg.Source != nil:
		m.ttl = m.attachedTTL()
	default:
		m.ttl = m.cfg.TTL
	}
	left := m.Remaining(now)
	m.noteSuspension(now)
	if left <= 0 || m.cfg.Source != nil && !m.lastsForRenewal(now) {
		switch {
		case m.cfg.Source != nil:
			m.fail(TooLate)
		case m.successor:
			m.disagree(now)
		default:
			m.abandonAttempt(now, TooLate)
		}
		return
	}
	if m.become(Holding); m.phase != Holding {
		return
	}
	m.since, m.fx.Outcome = now, Acquired
	m.renew = m.firstRenewal()
	if m.successor {
		m.renew = now.Mono + min(renewHanded, left/3)
	} else if m.isElsewhere() { // others see the slot as free in those cells
		m.renew = min(m.renew, now.Mono+renewHanded)
	}
	if m.cfg.Source != nil {
		m.renew = min(m.renew, now.Mono+left/3)
	}
	m.renewalDue = m.renew
	if !m.renews() {
		m.renew = 0
	}
	for i := range m.Cells {
		if m.cfg.Source == nil { // an Attach is in no queue
			m.leaveQueue(i)
		}
	}
	m.changed++
}

// firstRenewal returns when a hold is first renewed: after a half to the whole of renewAfter, which
// spreads leases that began together.
func (m *Machine) firstRenewal() time.Duration { return m.spreadRenewal(m.start, renewSteps/2) }

// spreadRenewal returns a random time within that many steps before nextRenewal.
func (m *Machine) spreadRenewal(start Time, steps int) time.Duration {
	return m.nextRenewal(start) - m.renewStep()*time.Duration(m.Draw(steps))
}

// nextRenewal returns when the renewal after one that began at start is due. The time is rounded,
// so that renewals due at about the same time share a timer, and a write to each node.
func (m *Machine) nextRenewal(start Time) time.Duration {
	return (start.Mono + m.renewAfter()).Truncate(m.renewStep())
}

// renewAfter is the time from the start of a renewal to the next one.
func (m *Machine) renewAfter() time.Duration { return m.cfg.TTL / 3 }

// renewSteps is the number of rounded times in renewAfter.
const renewSteps = 128

func (m *Machine) renewStep() time.Duration { return max(m.renewAfter()/renewSteps, 1) }

// leaveQueue takes the waiter of a new hold out of a queue. A holder that is first there would
// block the others.
func (m *Machine) leaveQueue(i int) {
	c := &m.Cells[i]
	if m.successor {
		own := c.Standing == Asked || c.Standing == Granted || c.Standing == Unknown
		switch {
		case own: // the own owner's grant is of no use
			m.call(Call{Do: ReleaseAndLeave, Cell: int32(i), Attempt: m.attempt})
		case c.leftover, c.unanswered > 0:
			m.call(Call{Do: Leave, Cell: int32(i), Attempt: m.attempt})
		}
		if c.former > 0 {
			m.call(Call{Do: Release, Cell: int32(i), Attempt: c.former, Successor: true})
		}
		switch {
		case c.HandedOver() && c.apart:
			m.move(i)
		case c.HandedOver():
			c.inherit()
		case own:
			c.leave()
		}
		return
	}
	switch c.Standing {
	case Asked: // see acquired
	case Granted:
		if c.leftover { // an earlier attempt may have queued it since
			m.call(Call{Do: Leave, Cell: int32(i), Attempt: m.attempt, All: true})
		}
		if c.apart {
			m.move(i)
		}
	default:
		if !c.isClear() {
			m.call(Call{Do: Leave, Cell: int32(i), Attempt: m.attempt, All: true})
		}
	}
}

// checkDeadline ends the hold when its validity is over. It needs no node for that.
func (m *Machine) checkDeadline(now Time) {
	m.noteSuspension(now)
	if m.Remaining(now) > 0 {
		return
	}
	if m.isOverMaxHold(now) {
		m.lose(OverMaxHold)
	} else {
		m.lose(NotRenewed)
	}
}

// noteSuspension notes the lead of Boot over Mono since start. Mono may have stood still during a
// suspend; by Mono, the validity then ends earlier by the lead.
func (m *Machine) noteSuspension(now Time) {
	m.suspended = now.Since(m.start) - (now.Mono - m.start.Mono)
}

// isOverMaxHold reports whether the hold has lasted for MaxHold, and is not renewed any more.
func (m *Machine) isOverMaxHold(now Time) bool {
	return m.cfg.MaxHold > 0 && now.Since(m.since) >= m.cfg.MaxHold
}

func (m *Machine) lose(why Reason) {
	m.become(Losing)
	m.fx.Lost = why
	m.endRounds()
}

// endRounds fails all undecided renewals, so that their callers return.
func (m *Machine) endRounds() {
	for _, r := range m.rounds {
		m.endRound(r)
	}
}

func (m *Machine) endRound(r *round) {
	if !r.decided {
		r.decided = true
		m.fx.Rounds = append(m.fx.Rounds, Round{ID: r.id})
	}
}

// LastRound returns the number of the last renewal.
func (m *Machine) LastRound() int32 { return m.last }

// renewAll begins a renewal at all cells. The hold then has a validity of ttl.
func (m *Machine) renewAll(now Time, ttl time.Duration) {
	m.renew = 0
	m.last++
	r := &round{id: m.last, start: now, ttl: ttl}
	keep := m.promised - now.Mono
	if keep <= m.cfg.TTL {
		keep = 0
	}
	r.tally.init(&m.cfg.Tree)
	m.rounds = append(m.rounds, r)
	for i := range m.Cells {
		if m.Cells[i].Standing == Foreign {
			continue
		}
		r.tally.set(i, Unanswered.facts())
		r.unanswered++
		m.call(Call{Do: Renew, Cell: int32(i), Attempt: m.attempt, Successor: m.successor, Round: r.id, For: keep})
	}
}

// mayShorten reports whether an older call may still run at the cell after the round. Such a call
// would set the expiry that it asked for. So the cell has no vote on a TTL that is longer than the
// lock's.
func (m *Machine) mayShorten(i int32, r *round) bool {
	c := &m.Cells[i]
	return c.unsure || c.lostRenewal || c.restored || c.unanswered > 0 ||
		slices.ContainsFunc(m.rounds, func(o *round) bool { return o.id < r.id && o.tally.cells[i] == Unanswered.facts() })
}

// renewed handles a cell's answer to a renewal. A confirmation counts even if the answer to the
// attempt was lost: the owner names this very cell.
func (m *Machine) renewed(now Time, call Call, reply Reply) {
	if m.keep && m.phase >= Releasing && !reply.Unsent && (reply.Err != nil || reply.OK) {
		m.restartKeep(now, call.Cell)
	}
	i := slices.IndexFunc(m.rounds, func(r *round) bool { return r.id == call.Round })
	if i < 0 {
		return
	}
	r := m.rounds[i]
	if r.unanswered--; r.unanswered == 0 {
		defer func() { m.rounds = slices.Delete(m.rounds, i, i+1) }()
	}
	if m.phase != Holding {
		return
	}
	c := &m.Cells[call.Cell]
	vote := No
	gone := reply.WrongUse // another program has overwritten the key
	if reply.Err == nil {
		if !c.copied {
			c.works()
			gone = !reply.OK
		}
		switch {
		case reply.OK:
			vote = Yes
			c.confirm()
			if r.ttl > m.cfg.TTL && m.mayShorten(call.Cell, r) {
				vote = No
			}
		case c.Standing == Granted: // a replica without the grant may queue the waiter
			c.litter()
		// The cell did not hand over, and a holder must not stay queued.
		case m.successor && c.Standing != Left && !c.isClear():
			c.leave()
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt})
		}
	}
	t := &r.tally
	t.set(int(call.Cell), vote.facts().with(isGone, gone))
	if t.holds(isGone) {
		m.lose(Gone)
		return
	}
	if r.decided {
		if gone {
			m.restore(int(call.Cell))
		}
		return
	}
	result := t.result(saidYes, maySayYes)
	if result == VotePending {
		return
	}
	r.decided = true
	m.fx.Rounds = append(m.fx.Rounds, Round{r.id, result == VoteWon, int(t.root[saidYes]), max(now.Mono-m.renewalDue, 0)})
	delayed := m.late || r.start.Mono-m.renewalDue > m.renewStep()
	if result == VoteWon {
		m.extend(now, r)
	} else {
		if r.ttl <= m.cfg.TTL { // otherwise the hold may be renewed all the same
			m.fx.Late, m.fx.Won = !m.late, int(t.root[saidYes])
			m.late = true
		}
		m.schedule(now, now.Mono+max(min(m.ttl, m.cfg.TTL)/50, minRetry))
	}
	// A cell that grants again votes from the next renewal on: before this grant, another owner may
	// have had the lock there.
	for i, f := range t.cells {
		if f>>isGone&1 == 1 {
			m.restore(i)
		}
	}
	switch {
	case result == VoteWon && delayed: // as others were, so that they are due at the same time
		m.schedule(now, m.spreadRenewal(r.start, renewSteps*7/8))
	case result == VoteWon:
		m.schedule(now, m.nextRenewal(r.start))
	}
}

// extend moves the deadline. It is called only while the hold is valid: a lost hold stays lost.
// The end of a longer TTL stays where it is, since no later renewal shortens the expiry.
func (m *Machine) extend(now Time, r *round) {
	m.late = false
	m.renewalDue = max(m.renewalDue, m.nextRenewal(r.start))
	if m.cfg.Drift.Validity(r.ttl, now.Since(r.start)) >= m.Remaining(now) {
		m.start, m.ttl = r.start, r.ttl
	}
}

// schedule sets the time of the next renewal.
func (m *Machine) schedule(now Time, at time.Duration) {
	if m.renews() && !m.isOverMaxHold(now) {
		m.renew = at
	}
}

// renews reports whether the machine renews the hold. An attached hold with less than this client's
// TTL is renewed until one renewal succeeds, even without automatic renewal.
func (m *Machine) renews() bool {
	return m.cfg.Renew || m.cfg.Source != nil && m.ttl < m.cfg.TTL
}

// restore asks a cell that has lost the hold to grant it again. After an Attach, the cell may have
// it parked, and first passes it on.
func (m *Machine) restore(i int) {
	if m.cfg.Source != nil {
		m.attach(i)
	}
	m.call(Call{Do: Restore, Cell: int32(i), Attempt: m.attempt, Successor: m.successor, Token: m.token})
}

// restored handles the answer to a Restore. After the hold, it may have overtaken the release.
func (m *Machine) restored(now Time, call Call, r Reply) {
	c := &m.Cells[call.Cell]
	if r.Err == nil && r.OK {
		c.count(r.Token)
	}
	switch {
	// The Downgrade came before the grant.
	case r.Err == nil && !r.OK && r.Ours && m.shared && m.phase < Releasing:
		m.call(Call{Do: Renew, Cell: call.Cell, Attempt: m.attempt, Successor: m.successor})
	case r.Err == nil && !r.OK && r.Ours:
		c.duplicate()
	case m.phase < Releasing || r.Unsent || r.Err == nil && !r.OK:
	case m.keep:
		m.restartKeep(now, call.Cell)
	default:
		m.call(Call{Do: Release, Cell: call.Cell, Attempt: call.Attempt, Successor: call.Successor})
	}
}

// Waited returns the time since the call began, and the furthest position in a queue. Both are 0 if
// the call got the lock at once.
func (m *Machine) Waited(now Time) (since time.Duration, furthest int) {
	refused := m.successor || m.attempt > 1
	for i := range m.Cells {
		refused = refused || m.Cells[i].Refusal != nil
		furthest = max(furthest, m.Cells[i].Position)
	}
	if !refused {
		return 0, 0
	}
	return now.Since(m.began), furthest
}

// Unclaimed reports whether the machine has a hold that no caller has yet: see Settle. Nobody works
// under it, so it can be released at any time.
func (m *Machine) Unclaimed() bool { return m.phase == Holding && m.cfg.Unclaimed }

// Settle makes the hold one of another configuration, as if it had been granted now.
func (m *Machine) Settle(now Time, c *Config) {
	if m.cfg, m.since = c, now; !m.renews() {
		m.renew = 0
	}
}
