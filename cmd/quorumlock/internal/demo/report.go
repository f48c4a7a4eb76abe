package demo

import (
	"fmt"
	"io"
	"time"
)

// report prints the events, with the time since the start, and counts promises. It is for one
// goroutine.
type report struct {
	out    io.Writer
	color  bool
	start  time.Time
	acts   int
	kept   int
	broken []string
}

const (
	bold  = "1"
	green = "32"
	red   = "1;31"
)

// act begins an act.
func (r *report) act(title string) {
	r.acts++
	fmt.Fprintln(r.out)
	r.line(r.paint(bold, fmt.Sprintf("%d. %s", r.acts, title)))
}

// say prints an event.
func (r *report) say(format string, args ...any) { r.line("   " + fmt.Sprintf(format, args...)) }

// promise prints whether a promise was kept.
func (r *report) promise(kept bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if kept {
		r.kept++
		r.line("   " + r.paint(green, "kept") + "    " + text)
		return
	}
	r.broken = append(r.broken, text)
	r.line("   " + r.paint(red, "BROKEN") + "  " + text)
}

// summary tells how it went, and returns ErrBroken if any promise was broken.
func (r *report) summary() error {
	fmt.Fprintln(r.out)
	if len(r.broken) == 0 {
		r.line(r.paint(green, fmt.Sprintf("All %d promises were kept.", r.kept)))
		return nil
	}
	r.line(r.paint(red, fmt.Sprintf("%d of %d promises were BROKEN:", len(r.broken), r.kept+len(r.broken))))
	for _, b := range r.broken {
		r.say("%s", b)
	}
	return ErrBroken
}

func (r *report) line(text string) {
	fmt.Fprintf(r.out, "%6.2fs  %s\n", time.Since(r.start).Seconds(), text)
}

func (r *report) paint(code, text string) string {
	if !r.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
