// Package nodes lets launchers meet if each node of a job has one: for example in the pods of a Kubernetes Job, where
// no launcher can start anything on other nodes. Every node but node 0 calls Join, which goes to node 0 and lets node 0
// use the node. Node 0 has a Gathering. The package reads only the variables that it is given.
package nodes

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// DefaultPort is node 0's port if nothing names another. It is torchrun's.
const DefaultPort = 29500

// MaxNodes is the most nodes of a job.
const MaxNodes = 1 << 16

// Place is a node's place in a job.
type Place struct {
	// Count is how many nodes there are. An elastic job, whose nodes come and go, has Least to Count.
	Count, Least int
	Elastic      bool
	// Rank is the node's number. In an elastic job it may be at or above Count, and below 0 if the node has none.
	Rank int
	// ID is the job's name, which must be the same on all nodes; empty for none.
	ID string
	// Slots says how many processes this node may run: a number, or "auto", "gpu", "cpu" to count the devices.
	Slots string
	// Head is the name or address of node 0, and Port its port.
	Head string
	Port int
	// Certificates are for the connections between the launchers, which always use TLS.
	Certificates auth.Certificates
}

// Address is where node 0 listens.
func (p Place) Address() string { return net.JoinHostPort(p.Head, strconv.Itoa(p.Port)) }

// Asked holds the user's options; a zero value leaves the choice to the variables.
type Asked struct {
	Rank, Port             *int
	Nodes, Slots, Head, ID string // Nodes is a number, or "2:4" for from 2 to 4
	Elastic                bool   // the nodes come and go, even if Nodes is no range
}

// given reports whether the user has said anything.
func (a Asked) given() bool { return a != Asked{} }

// SlotsVariable is torchrun's name for --nproc-per-node as a variable.
const SlotsVariable = "PET_NPROC_PER_NODE"

// The other variables: torchrun's, each of which stands for one of its options, and that of an indexed Job of
// Kubernetes.
const (
	countVariable = "PET_NNODES"
	rankVariable  = "PET_NODE_RANK"
	headVariable  = "PET_MASTER_ADDR"
	portVariable  = "PET_MASTER_PORT"
	pointVariable = "PET_RDZV_ENDPOINT" // node 0's name and port, together
	idVariable    = "PET_RDZV_ID"
	indexVariable = "JOB_COMPLETION_INDEX"
)

// Find returns the node's place, and false if neither the user nor the environment says that the job has several nodes.
// getenv looks a variable up; an empty value counts as not set. host is this node's full name.
func Find(a Asked, getenv func(string) string, host string) (p Place, found bool, err error) {
	if !a.given() && getenv(countVariable) == "" {
		if index := getenv(indexVariable); index != "" {
			return p, false, fmt.Errorf("this is pod %s of an indexed Job (%s), and nothing says how many there are: "+
				"give --nnodes, or set %s", index, indexVariable, countVariable)
		}
		return p, false, nil
	}
	if err := p.count(a, getenv); err != nil {
		return p, false, err
	}
	if p.Count == 1 {
		zero := 0
		a.Rank, a.Head = &zero, "localhost"
	}
	p.ID, p.Slots = first(a.ID, getenv(idVariable)), first(a.Slots, getenv(SlotsVariable), "auto")
	if err := p.head(a, getenv); err != nil {
		return p, false, err
	}
	if err := p.rank(a, getenv, host); err != nil {
		return p, false, err
	}
	if p.Head == "" {
		if p.Head, err = sibling(host, p.Rank); err != nil {
			return p, false, err
		}
	}
	return p, true, nil
}

// count sets the number of nodes.
func (p *Place) count(a Asked, getenv func(string) string) error {
	name, text := "--nnodes", a.Nodes
	if text == "" {
		name, text = countVariable, getenv(countVariable)
	}
	if text == "" {
		return fmt.Errorf("--nnodes is missing: give it, or set %s", countVariable)
	}
	least, most, ranged := strings.Cut(text, ":")
	if !ranged {
		most = least
	}
	low, err1 := strconv.Atoi(least)
	high, err2 := strconv.Atoi(most)
	if err1 != nil || err2 != nil || low < 1 || high < low || high > MaxNodes {
		return fmt.Errorf("%s %s: a number from 1 to %d is needed, or for an elastic job the fewest and the most "+
			"nodes, as in 2:4", name, strconv.Quote(text), MaxNodes)
	}
	p.Least, p.Count, p.Elastic = low, high, ranged || a.Elastic
	if a.Elastic && !ranged {
		p.Least = 1
	}
	return nil
}

// head sets node 0's name and port, if an option or a variable names them.
func (p *Place) head(a Asked, getenv func(string) string) (err error) {
	name := headVariable
	if a.Head != "" {
		name = "--master-addr"
	}
	p.Head, p.Port = first(a.Head, getenv(headVariable)), DefaultPort
	if point := getenv(pointVariable); p.Head == "" && point != "" {
		host, port, err := net.SplitHostPort(point)
		if err != nil { // there is no port
			host, port = strings.Trim(point, "[]"), ""
		}
		name, p.Head = pointVariable, host
		getenv = overlaid(getenv, portVariable, first(getenv(portVariable), port))
	}
	if p.Head, err = address(name, p.Head); err != nil {
		return err
	}
	if a.Port != nil || getenv(portVariable) != "" {
		p.Port, err = number("--master-port", a.Port, 1, 65535, getenv, portVariable)
	}
	return err
}

// hostName matches names of the domain name system, and those of a hosts file.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?` +
	`(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*\.?$`)

// address checks node 0's name or address, which name says, and drops the brackets of an address of IPv6. Empty stays
// empty.
func address(name, text string) (string, error) {
	bare := text
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		bare = text[1 : len(text)-1]
	}
	_, err := netip.ParseAddr(bare)
	if text == "" || err == nil {
		return bare, nil
	}
	if bare != text || len(text) > 254 || !hostName.MatchString(text) {
		if len(text) > 100 {
			text = text[:100] + "…"
		}
		return "", fmt.Errorf("%s %s: the name or the address of node 0 is needed, without its port", name,
			strconv.Quote(text))
	}
	return text, nil
}

// overlaid is getenv with another value of one variable.
func overlaid(getenv func(string) string, name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return getenv(asked)
	}
}

// rank sets the node's number. In an elastic job, a node without a number is node 0 if it has node 0's name.
func (p *Place) rank(a Asked, getenv func(string) string, host string) (err error) {
	most := p.Count - 1
	if p.Elastic {
		most = MaxNodes
		if a.Rank == nil && getenv(rankVariable) == "" && getenv(indexVariable) == "" && p.Head != "" {
			short, _, _ := strings.Cut(host, ".")
			own, _, _ := strings.Cut(p.Head, ".")
			if p.Rank = -1; own == short {
				p.Rank = 0
			}
			return nil
		}
	}
	p.Rank, err = number("--node-rank", a.Rank, 0, most, getenv, rankVariable, indexVariable)
	return err
}

// number is an option's value, or else the value of the first variable that is set.
func number(option string, asked *int, least, most int, getenv func(string) string, variables ...string) (int, error) {
	name, text := option, ""
	if asked != nil {
		text = strconv.Itoa(*asked)
	}
	for _, v := range variables {
		if text == "" {
			name, text = v, getenv(v)
		}
	}
	if text == "" {
		return 0, fmt.Errorf("%s is missing: give it, or set %s", option, strings.Join(variables, " or "))
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s %s: a number from %d to %d is needed", name, strconv.Quote(text), least, most)
	}
	return n, nil
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// numbered matches a name with a number, such as NAME-3, which pods of an indexed Job, JobSet or StatefulSet have.
var numbered = regexp.MustCompile(`^([^.]+)-([0-9]+)(\..*)?$`)

// sibling is the name of node 0, derived from host, this node's full name, if that ends with this node's number.
func sibling(host string, rank int) (string, error) {
	m := numbered.FindStringSubmatch(host)
	if m == nil || m[2] != strconv.Itoa(rank) {
		return "", fmt.Errorf("--master-addr is missing: give it, or set %s. It is node 0's name; it cannot be told "+
			"from %s, the name of node %d, which does not end with -%d", headVariable, strconv.Quote(host), rank, rank)
	}
	return m[1] + "-0" + m[3], nil
}

// FullName returns the longer name of host in a hosts file, where Kubernetes writes it for a pod with a subdomain; host
// if there is none.
func FullName(host, hostsFile string) string {
	for line := range strings.Lines(hostsFile) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		for _, name := range fields[min(1, len(fields)):] {
			if strings.HasPrefix(name, host+".") {
				return name
			}
		}
	}
	return host
}
