package client

// Copy gives c the identity of d, as if both were restored from one image of a process.
func (c *Client) Copy(d *Client) {
	c.id, c.wake, c.place = d.id, d.wake, d.place
	c.calls.Store(d.calls.Load())
}

// LocalQueues returns the number of local queues.
func (c *Client) LocalQueues() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queues)
}

// Alarms returns the number of moments at which held calls are woken.
func (c *Client) Alarms() int {
	c.alarms.mu.Lock()
	defer c.alarms.mu.Unlock()
	return max(len(c.alarms.due), len(c.alarms.queue))
}
