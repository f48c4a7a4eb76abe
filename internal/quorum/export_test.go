package quorum

// Copy makes c what it is if c and d were restored from one image of a process.
func (c *Client) Copy(d *Client) {
	c.id, c.wake, c.place = d.id, d.wake, d.place
	c.calls.Store(d.calls.Load())
}
