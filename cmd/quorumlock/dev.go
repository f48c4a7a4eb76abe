package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

const devVerbs = "stop, start, freeze, thaw or forget"

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
		n, err := startDevNode(i+1, c.Port)
		if err != nil {
			return fmt.Errorf("dev: --port %d: %w: use another port, or 0 for any free ports", c.Port, err)
		}
		defer n.close()
		nodes[i], urls[i] = n, "redis://"+n.addr
	}
	_, err := fmt.Fprintf(e.text, "%s=%s\nType stop 1, start 1, freeze 1, thaw 1, forget 1 or help. Ctrl-C ends the nodes.\n",
		options.NodesVariable, strings.Join(urls, ","))
	if err != nil {
		return err
	}
	if isTerminal(e.stdin) {
		readInBackground()
	}
	lines, failed := make(chan string), error(nil) // failed is valid when lines is closed
	go func() {                                    // a read that is under way ends with the process
		defer close(lines)
		in := bufio.NewScanner(e.stdin)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-e.ctx.Done():
				return
			}
		}
		failed = in.Err()
	}()
	for {
		select {
		case <-e.ctx.Done():
			return nil
		case line, ok := <-lines:
			if !ok {
				lines = nil
				if failed != nil {
					complain(e.stderr, fmt.Errorf("dev: no more commands are read, and the nodes go on: %w", failed))
				}
				continue
			}
			said, err := obey(nodes, strings.Fields(line))
			if err != nil {
				complain(e.stderr, err)
			}
			if said == "" {
				continue
			}
			if _, err := io.WriteString(e.text, said); err != nil {
				return err
			}
		}
	}
}

// obey carries out a command, and returns a line about each of its nodes. A command with a mistake
// does nothing.
func obey(nodes []*devNode, words []string) (said string, err error) {
	if len(words) == 0 {
		return "", nil
	}
	verb := words[0]
	if verb == "help" {
		return wrap(devHelp, helpWidth) + "\n", nil
	}
	do, ok := map[string]func(*devNode) error{
		"stop": (*devNode).stop, "start": (*devNode).start, "freeze": (*devNode).freeze, "thaw": (*devNode).thaw, "forget": (*devNode).forget,
	}[verb]
	if !ok {
		return "", fmt.Errorf("unknown command %.80q: use %s and the numbers of nodes, or help", verb, devVerbs)
	}
	if len(words) == 1 {
		return "", fmt.Errorf("%s: no node is named: use numbers from 1 to %d, as in %s 1", verb, len(nodes), verb)
	}
	chosen := make([]*devNode, len(words)-1)
	for i, word := range words[1:] {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > len(nodes) {
			return "", fmt.Errorf("%s: there is no node %.80q: use numbers from 1 to %d", verb, word, len(nodes))
		}
		chosen[i] = nodes[n-1]
	}
	for _, n := range chosen {
		if err := do(n); err != nil {
			return said, fmt.Errorf("%s: node %d: %w", verb, n.number, err)
		}
		said += fmt.Sprintf("node %d %s\n", n.number, n.state())
	}
	return said, nil
}

// devNode is an embedded node at an address of this machine. It is for one goroutine.
type devNode struct {
	number   int
	addr     string
	server   *embedded.Server
	listener net.Listener // nil while the node is stopped
	serving  sync.WaitGroup
	frozen   bool // false while the node is stopped
}

func startDevNode(number, firstPort int) (*devNode, error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+number-1))
	if firstPort == 0 {
		var err error
		if addr, err = freeport.Addr(); err != nil {
			return nil, err
		}
	}
	n := &devNode{number: number, addr: addr, server: embedded.Start(addr)}
	if err := n.serve(true); err != nil {
		n.server.Close()
		return nil, err
	}
	return n, nil
}

// serve starts a stopped node.
func (n *devNode) serve(keepData bool) error {
	l, err := net.Listen("tcp", n.addr)
	if err != nil {
		return err
	}
	n.server.Restart(keepData)
	n.listener = l
	n.serving.Go(func() { n.server.Serve(l) })
	return nil
}

func (n *devNode) stop() error {
	if n.listener != nil {
		_ = n.listener.Close()
	}
	n.server.Kill()
	n.server.Resume()
	n.serving.Wait()
	n.listener, n.frozen = nil, false
	return nil
}

func (n *devNode) start() error {
	if n.listener != nil {
		return nil
	}
	return n.serve(true)
}

func (n *devNode) forget() error {
	_ = n.stop() // it never fails
	return n.serve(false)
}

func (n *devNode) freeze() error {
	if n.listener == nil {
		return fmt.Errorf("it is stopped: use start %d first", n.number)
	}
	n.server.Stall()
	n.frozen = true
	return nil
}

func (n *devNode) thaw() error {
	n.server.Resume()
	n.frozen = false
	return nil
}

func (n *devNode) state() string {
	switch {
	case n.listener == nil:
		return "is stopped"
	case n.frozen:
		return "is frozen"
	}
	return "serves"
}

func (n *devNode) close() {
	_ = n.stop() // it never fails
	n.server.Close()
}
