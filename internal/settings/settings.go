// Package settings has the resolved options. It does not import package quorumlock, whose options
// write it: the types of that package are parameters. Package options reads it.
package settings

import (
	"log/slog"
	"time"
)

// Of has the resolved options of a lock.
type Of[Owner ~string, Drift, Observer any] struct {
	TTL         time.Duration // the expiry set on the key at each node
	Renew       bool          // whether the watchdog extends the lease
	Wait        time.Duration // the limit of Lock's wait; negative: until its ctx is done
	NodeTimeout time.Duration // how long one node may take to answer
	Drift       Drift         // the allowance for clock rates
	Quorum      int           // the nodes that must agree; 0: a majority
	MaxTTL      time.Duration // the longest TTL of any client, for the restart guard; 0: no guard
	Owner       Owner         // whose hold Lock may enter; empty: decided by its ctx
	NoReentry   bool          // whether a ctx that descends from a lease of the lock is refused
	Prefix      string        // put before the lock's name in every key
	Label       string        // begins the owners of the client, so that people see who they are
	MaxHold     time.Duration // how long after the grant the watchdog renews; 0: no limit
	Data        string        // the data of each hold
	Retention   time.Duration // how long the nodes keep a latch that is not used
	Logger      *slog.Logger  // never nil once resolved
	Observer    Observer      // nil: nobody observes
	NodeOptions any           // of redlock.WithNodeOptions, for redlock.Dial; nil once resolved
	Follow      any           // an *options.Follow, for redlock.New; nil: the settings stay
}
