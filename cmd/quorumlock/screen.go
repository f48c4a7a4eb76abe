package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// The control sequences of top. Every terminal since the VT100 has them, except for the second
// screen.
const (
	enter     = "\x1b[?1049h\x1b[?25l" // the second screen, no cursor
	leave     = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	endOfLine = "\x1b[K"
	endOfPage = "\x1b[J"
	reverse   = "\x1b[7m"
	red       = "\x1b[31m"
	plain     = "\x1b[m"
)

// draw shows the looks on a terminal until the user quits.
func (w *watcher) draw(e *env, out *os.File) error {
	ctx, quit := context.WithCancel(e.ctx)
	defer quit()
	keys := make(chan byte, 16)
	if in, ok := e.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err == nil {
			defer func() { _ = term.Restore(int(in.Fd()), before) }()
			go readKeys(in, keys)
		}
	}
	if _, err := out.WriteString(enter); err != nil {
		return err
	}
	defer func() { _, _ = out.WriteString(leave) }()

	var v topView
	var page string // the page instead of the looks: of one lock, or the keys
	pages := make(chan string, 1)
	looked := make(chan topView, 1)
	lookAgain := func() {
		go func() { // so that keys work while a node is slow
			v, _ := w.look(ctx) // the view has the error
			looked <- v
		}()
	}
	lookAgain()
	next := time.NewTimer(time.Hour)
	top := 0
	for {
		select {
		case v = <-looked:
			if w.isOver() {
				return nil
			}
			next.Reset(w.Interval)
		case <-next.C:
			lookAgain()
			continue
		case page = <-pages:
		case k := <-keys:
			if page != "" && k != 3 && k != 4 { // any key goes back
				page = ""
				break
			}
			switch k {
			case 'q', 'Q', 3, 4: // Ctrl-C, Ctrl-D
				quit()
				return nil
			case '?', 'h':
				page = keysOfTop
			case '\r', '\n':
				if top < len(v.Locks) {
					page = "looking ..."
					go func(name string) { pages <- w.describe(ctx, name) }(v.Locks[top].Name)
				}
			case 'j', 'B':
				top++
			case 'k', 'A':
				top--
			case ' ':
				top += 10
			case 'b':
				top -= 10
			case 'g':
				top = 0
			}
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width < 1 || height < 1 {
			width, height = 80, 24
		}
		top = max(min(top, len(v.Locks)-1), 0)
		if page != "" {
			if _, err := out.WriteString(drawn(page, width, height)); err != nil {
				return err
			}
			continue
		}
		if _, err := out.WriteString(v.screen(width, height, top, os.Getenv("NO_COLOR") == "")); err != nil {
			return err
		}
	}
}

const keysOfTop = `j, k, arrows   scroll by a line
space, b       scroll by ten lines
g              back to the first line
Enter          all about the lock in the first line
?, h           these keys
q, Ctrl-C      end

HELD is for how long the holder has been seen; > means since before top began.
TTL is how long the nodes keep the lock if it is not renewed.
QUEUE is the number of waiters, FIRST the first of them.`

// describe returns the output of inspect for a lock.
func (w *watcher) describe(ctx context.Context, name string) string {
	v, err := w.client.inspect(ctx, name)
	if err != nil && len(v.Nodes) == 0 {
		return errorText(err)
	}
	var b strings.Builder
	_ = v.print(&b) // into memory
	return b.String()
}

// drawn returns a page of text as a screen of that size.
func drawn(page string, width, height int) string {
	lines := strings.Split(strings.TrimRight(page, "\n"), "\n")
	lines = lines[:min(len(lines), max(height-1, 0))]
	for i := range lines {
		lines[i] = cell(lines[i], width)
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, cell("any key: back", width-1))
	return home + strings.Join(lines, endOfLine+"\r\n") + endOfLine + endOfPage
}

// readKeys sends typed bytes to keys. It reads until the program ends. The arrows are ESC [ A to D:
// only the letter counts.
func readKeys(in *os.File, keys chan<- byte) {
	var b [64]byte
	for {
		n, err := in.Read(b[:])
		if err != nil {
			return
		}
		typed := bytes.ReplaceAll(b[:n], []byte("\x1b["), nil)
		typed = bytes.ReplaceAll(typed, []byte("\x1bO"), nil)
		for _, k := range typed {
			keys <- k
		}
	}
}

// screen draws a look on a screen of that size, with the locks from number top on.
func (v topView) screen(width, height, top int, color bool) string {
	style := func(s, with string) string {
		if !color {
			return s
		}
		return with + s + plain
	}
	var lines []string
	title := "quorumlock top  " + v.At.Format("15:04:05") + "  " + v.summary()
	if v.At.IsZero() {
		title = "quorumlock top  looking ..."
	}
	lines = append(lines, style(cell(title, width), reverse))
	nodes := v.Nodes
	if most := max(height/3, 1); len(nodes) > most {
		nodes = nodes[:most]
	}
	for _, n := range nodes {
		if n.OK {
			lines = append(lines, cell(fmt.Sprintf("%-30s  ready   %9.2f ms", n.Node, n.RoundTrip*1000), width))
		} else {
			lines = append(lines, style(cell(fmt.Sprintf("%-30s  FAILED  %s", n.Node, n.Error), width), red))
		}
	}
	// The columns fit 80 characters; further columns of a wider screen go to names and holders.
	more := max(width-80, 0)
	name, holder, first := 20+more/2, 17+more/4, 13+more/4
	format := func(a, b, c, d, e, f, g string) string {
		return fmt.Sprintf("%s %s %s %s %s %s %s", cell(a, name), cell(b, holder), right(c, 6), right(d, 6), right(e, 6), cell(f, first), right(g, 6))
	}
	lines = append(lines, style(cell(format("LOCK", "HOLDER", "HELD", "TTL", "QUEUE", "FIRST", "WAITS"), width), reverse))
	end := "no locks are held or waited for"
	if len(v.Locks) > 0 {
		end = fmt.Sprintf("%d locks", len(v.Locks))
	}
	if v.More {
		end = fmt.Sprintf("the first %d locks found, there are more: give a pattern", len(v.Locks))
	}
	rows := height - len(lines) - 1
	for i := top; i < len(v.Locks) && i-top < rows; i++ {
		l := v.Locks[i]
		who, waits := l.head()
		lines = append(lines, cell(format(shown(l.Name), l.holder(), l.held(), seconds(l.State.TTL), fmt.Sprint(l.State.Waiting), who, waits), width))
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(height-1, 0)], cell(end+"  q: quit, arrows: scroll, Enter: the first line, ?: keys", width-1))
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		b.WriteString(l + endOfLine)
		if i < len(lines)-1 {
			b.WriteString("\r\n")
		}
	}
	b.WriteString(endOfPage)
	return b.String()
}

// cell fits text into that many columns. A character that may take two columns counts as two.
func cell(s string, width int) string {
	var b strings.Builder
	used := 0
	for _, r := range s {
		w := 1
		if r >= 0x1100 {
			w = 2
		}
		if !isSafe(r) || r == '\n' || r == '\t' {
			r = '?'
		}
		if used+w > width {
			break
		}
		b.WriteRune(r)
		used += w
	}
	return b.String() + strings.Repeat(" ", max(width-used, 0))
}

func right(s string, width int) string {
	if len(s) > width {
		return cell(s, width)
	}
	return strings.Repeat(" ", width-len(s)) + s
}
