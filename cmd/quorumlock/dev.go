package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
)

type devCommand struct {
	Nodes int `default:"3" placeholder:"N" help:"The number of nodes, 1 to 100."`
	Port  int `default:"7001" placeholder:"PORT" help:"The port of node 1. The other nodes have the next ports. 0: any free ports."`
}

func (devCommand) manual() manual {
	return manual{
		synopsis: "[--nodes N] [--port PORT]",
		description: `Serves nodes for development on this machine. It needs no Redis. The first line
of its output has their URLs, for your program and for other commands.

The nodes listen on loopback, without a password. Their data ends with this process. They are slow
with many keys: do not measure them.

Each line of the input is a command with the numbers of nodes, such as stop 2 3. ` + devHelp + `

A signal, such as Ctrl-C, ends the nodes. The end of the input does not, nor does Ctrl-D. In the
background of a terminal, dev reads no commands from it.`,
		statuses: `0  ended by a signal
1  it failed: for example, a port is in use
2  the command line is wrong`,
		examples: `quorumlock dev
quorumlock dev --nodes 5 --port 0
mkfifo faults; quorumlock dev <>faults & echo freeze 2 >faults`,
	}
}

const devHelp = `stop closes the connections of a node and refuses new ones; start lets it serve again, with its
data. freeze holds back all requests until thaw; then they run, late. forget restarts a node without
its data.`

func (c *devCommand) Run(e *env) error {
	switch {
	case c.Nodes < 1 || c.Nodes > 100:
		return usageError(fmt.Sprintf("dev: --nodes %d: use 1 to 100", c.Nodes))
	case c.Port < 0 || c.Port+c.Nodes-1 > 65535:
		return usageError(fmt.Sprintf("dev: --port %d: use 1 to %d for %d nodes, or 0 for any free ports", c.Port, 65536-c.Nodes, c.Nodes))
	}
	nodes, urls := make([]*devNode, c.Nodes), make([]string, c.Nodes)
	for i := range nodes {
		addr, err := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port+i)), error(nil)
		if c.Port == 0 {
			addr, err = freeport.Addr()
		}
		n := &devNode{server: embedded.Start(addr), addr: addr, state: devStopped}
		defer n.close()
		if err = errors.Join(err, n.obey("start")); err != nil {
			return fmt.Errorf("dev: --port %d: %w: use another port, or 0 for any free ports", c.Port, err)
		}
		nodes[i], urls[i] = n, "redis://"+addr
	}
	if _, err := fmt.Fprintf(e.text, "%s=%s\nType stop 1, start 1, freeze 1, thaw 1, forget 1 or help. Ctrl-C ends the nodes.\n",
		options.NodesVariable, strings.Join(urls, ",")); err != nil {
		return err
	}
	if isTerminal(e.stdin) {
		readInBackground()
	}
	var obeying sync.Mutex
	go func() { // a read that is under way ends with the process
		in := bufio.NewScanner(e.stdin)
		for in.Scan() {
			obeying.Lock()
			if err := obey(e.text, nodes, strings.Fields(in.Text())); err != nil {
				complain(e.stderr, err)
			}
			obeying.Unlock()
		}
		if err := in.Err(); err != nil {
			complain(e.stderr, fmt.Errorf("dev: no more commands are read, and the nodes go on: %w", err))
		}
	}()
	<-e.ctx.Done()
	obeying.Lock() // for good: no command comes after the end
	return nil
}

// obey carries out a command, and writes a line about each of its nodes. A command with a mistake
// does nothing.
func obey(out io.Writer, nodes []*devNode, words []string) error {
	switch {
	case len(words) == 0:
		return nil
	case words[0] == "help":
		_, err := fmt.Fprintln(out, wrap(devHelp, helpWidth))
		return err
	case !slices.Contains([]string{"stop", "start", "freeze", "thaw", "forget"}, words[0]):
		return fmt.Errorf("unknown command %.80q: use stop, start, freeze, thaw or forget and the numbers of nodes, or help", words[0])
	case len(words) == 1:
		return fmt.Errorf("%s: no node is named: use numbers from 1 to %d, as in %[1]s 1", words[0], len(nodes))
	}
	for _, word := range words[1:] {
		if n, err := strconv.Atoi(word); err != nil || n < 1 || n > len(nodes) {
			return fmt.Errorf("%s: there is no node %.80q: use numbers from 1 to %d", words[0], word, len(nodes))
		}
	}
	for _, word := range words[1:] {
		number, _ := strconv.Atoi(word)
		n := nodes[number-1]
		if err := n.obey(words[0]); err != nil {
			return fmt.Errorf("%s: node %d: %w", words[0], number, err)
		}
		if _, err := fmt.Fprintln(out, "node", number, n.state); err != nil {
			return err
		}
	}
	return nil
}

// devNode is an embedded node at an address of this machine. It is for one goroutine at a time.
type devNode struct {
	server   *embedded.Server
	addr     string
	state    string
	listener net.Listener // unless the node is stopped
	serving  sync.WaitGroup
}

const devServes, devFrozen, devStopped = "serves", "is frozen", "is stopped"

func (n *devNode) obey(verb string) error {
	if n.state != devStopped && (verb == "stop" || verb == "forget") {
		_ = n.listener.Close()
		n.server.Kill()
		n.server.Resume()
		n.serving.Wait()
		n.state = devStopped
	}
	switch stopped := n.state == devStopped; {
	case stopped && verb == "freeze":
		return errors.New("it is stopped: start it first")
	case stopped && (verb == "start" || verb == "forget"):
		l, err := net.Listen("tcp", n.addr)
		if err != nil {
			return err
		}
		n.server.Restart(verb == "start")
		n.serving.Go(func() { n.server.Serve(l) })
		n.listener, n.state = l, devServes
	case !stopped && verb == "freeze":
		n.server.Stall()
		n.state = devFrozen
	case !stopped && verb == "thaw":
		n.server.Resume()
		n.state = devServes
	}
	return nil
}

func (n *devNode) close() {
	_ = n.obey("stop") // it never fails
	n.server.Close()
}
