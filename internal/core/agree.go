package core

// agree sets the token to the highest one granted, and makes sure that a quorum of the cells has
// counted it. Usually all cells granted the same token.
//
// Tokens rise with every grant: the quorums of two grants share a node. Its counter reached the
// first token before the first grant was decided, so the second grant gets a higher one there. Only
// cells that granted are raised, and only while the owner has the lock there: a late raise could
// set the counter to the token of another holder.
func (m *Machine) agree(now Time) {
	m.become(Agreeing)
	m.token, m.giveUpAt = 0, 0
	for i := range m.Cells {
		m.token = max(m.token, m.tokenAt(i))
	}
	for i := range m.Cells {
		m.Cells[i].cast(m.vote(i))
	}
	m.changed++
	if m.tallies().holds(saidYes) {
		m.hold(now)
		return
	}
	for i := range m.Cells {
		if m.tokenAt(i) > 0 && m.Cells[i].vote == Unanswered {
			m.raise(i)
		}
	}
}

// vote returns a cell's vote on the token: Yes if it granted that token or a higher one, since it
// has counted past it; Unanswered if it needs a raise, or has not answered the attempt.
func (m *Machine) vote(i int) Vote {
	switch token := m.tokenAt(i); {
	case token >= m.token:
		return Yes
	case token > 0, m.Cells[i].Standing == Asked && !m.successor:
		return Unanswered
	}
	return No
}

func (m *Machine) raise(i int) {
	m.call(Call{Do: Raise, Cell: int32(i), Attempt: m.attempt, Successor: m.successor, From: m.tokenAt(i), Token: m.token})
}

// join adds the vote of a cell that answers or hands over late. Otherwise one failed raise would
// end an attempt that a quorum granted. After lastTry a TryLock has no time for a raise.
func (m *Machine) join(now Time, i int) {
	c := &m.Cells[i]
	c.cast(m.vote(i))
	switch last := m.lastTry(); {
	case c.vote != Unanswered:
	case last != 0 && now.Mono >= last:
		c.cast(No)
	default:
		m.raise(i)
	}
	m.decide(now)
}

// decide ends the agreement as soon as its votes do. Silent cells have as long as after a refusal.
func (m *Machine) decide(now Time) {
	switch t := m.tallies(); t.result(saidYes, maySayYes) {
	case VoteWon:
		m.hold(now)
	case VoteLost:
		m.disagree(now)
	default:
		// Every quorum needs a cell that has not answered the attempt.
		if m.giveUpAt == 0 && !t.holds(mayTakeToken) {
			m.giveUpAt = now.Mono + m.tolerance()
		}
	}
}

// tokenAt returns the token, at a cell, of the owner that is about to hold; 0 if the cell does not
// count for that owner.
func (m *Machine) tokenAt(i int) uint64 {
	c := &m.Cells[i]
	switch {
	case c.apart:
		return 0
	case m.successor:
		return c.handed.token
	case c.Standing == Granted:
		return c.token
	}
	return 0
}

func (m *Machine) raised(now Time, call Call, r Reply) {
	if m.phase != Agreeing || call.Attempt != m.attempt || call.Successor != m.successor {
		return
	}
	m.Cells[call.Cell].raised(r)
	m.decide(now)
}

// disagree ends an attempt without a quorum for its token.
func (m *Machine) disagree(now Time) {
	if m.successor {
		for i := range m.Cells { // the own owner's grants are of no use
			if s := m.Cells[i].Standing; s == Granted || s == Unknown {
				m.call(Call{Do: Release, Cell: int32(i), Attempt: m.attempt})
			}
		}
		m.ask(now) // the next attempt takes over the successor's cells
		return
	}
	for i := range m.Cells {
		if c := &m.Cells[i]; c.failed && c.Standing == Granted {
			c.doubt() // the next attempt must not wait for its Yield
		}
	}
	m.changed++
	why := m.refusal()
	if why == HeldOrNone {
		why = NoToken
		// The keys may have expired before the raise.
		if m.cfg.Drift.Validity(m.cfg.TTL, now.Since(m.asked)) <= 0 {
			why = TooLate
		}
	}
	m.abandonAttempt(now, why)
}
