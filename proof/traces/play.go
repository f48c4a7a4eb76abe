package traces

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// play plays the commands of a scenario, and returns them with their effects.
func play(scenario string) (string, error) {
	var w *world
	var head strings.Builder
	for number, line := range strings.Split(strings.TrimRight(scenario, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, " "):
			continue // an effect
		case w == nil && strings.HasPrefix(line, "nodes "):
			n, err := strconv.Atoi(strings.TrimPrefix(line, "nodes "))
			if err != nil || n < 1 {
				return "", fmt.Errorf("line %d: %q has no number of nodes", number+1, line)
			}
			if w, err = newWorld(n); err != nil {
				return "", err
			}
			fmt.Fprintf(w, "%s%s\n", head.String(), line)
		case w == nil:
			head.WriteString(line + "\n")
		default:
			fmt.Fprintln(w, line)
			if err := w.command(strings.Fields(line)); err != nil {
				return "", fmt.Errorf("line %d: %q: %w", number+1, line, err)
			}
		}
	}
	if w == nil {
		return "", fmt.Errorf("no line says how many nodes there are")
	}
	return w.ranked(), nil
}

var events = map[string]core.EventKind{"unlock": core.Unlock, "extend": core.Extend, "cancel": core.Cancel}

func (w *world) command(f []string) error {
	if len(f) == 0 || strings.HasPrefix(f[0], "#") {
		return nil
	}
	if len(f) == 1 {
		return fmt.Errorf("the command lacks an argument")
	}
	if f[1] == "lock" || f[1] == "trylock" {
		w.begin(f[0], f[1] == "trylock")
		return nil
	}
	if f[1] == "ahead" && len(f) == 3 {
		d, err := time.ParseDuration(f[2])
		w.ahead[f[0]] = d
		return err
	}
	if kind, ok := events[f[1]]; ok {
		c := w.client(f[0])
		if c == nil {
			return fmt.Errorf("no client %s", f[0])
		}
		c.step(core.Event{Kind: kind})
		return nil
	}
	switch f[0] {
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err == nil {
			w.wait(d)
		}
		return err
	case "thaw", "forget":
		cells, err := w.cells(f[1:])
		for _, i := range cells {
			if f[0] == "forget" {
				w.nodes[i].Node = scriptmodel.New(fmt.Sprint(w.now))
				continue
			}
			late := w.nodes[i].delayed
			w.nodes[i].delayed = nil
			for _, r := range late {
				w.run(r)
			}
		}
		return err
	}
	c := w.client(f[1])
	if c == nil {
		return fmt.Errorf("no client %s", f[1])
	}
	cells, err := w.cells(f[2:])
	if err != nil {
		return err
	}
	switch f[0] {
	case "kill":
		c.dead = true
	case "run", "lose", "delay":
		for _, i := range cells {
			w.exchange(f[0], c, i)
		}
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

// exchange handles what a client has sent to a node.
func (w *world) exchange(how string, c *client, cell int) {
	sent := c.sent[cell]
	c.sent[cell] = nil
	for _, r := range sent {
		lost := wire.Reply{Err: errTimeout}
		switch how {
		case "run":
			r.reply(w.run(r))
		case "lose":
			w.run(r)
			r.reply(lost)
		case "delay":
			w.nodes[cell].delayed = append(w.nodes[cell].delayed, r)
			r.reply(lost)
		}
	}
}

// cells returns the indices of nodes, of all nodes without names.
func (w *world) cells(names []string) (cells []int, err error) {
	for _, s := range names {
		i, err := strconv.Atoi(strings.TrimPrefix(s, "n"))
		if err != nil || i < 1 || i > len(w.nodes) {
			return nil, fmt.Errorf("no node %s", s)
		}
		cells = append(cells, i-1)
	}
	for i := range w.nodes {
		if len(names) == 0 {
			cells = append(cells, i)
		}
	}
	return cells, nil
}
