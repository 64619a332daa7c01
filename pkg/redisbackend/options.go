package redisbackend

import (
	"errors"
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Mode says what the URLs lead to.
type Mode string

// The modes.
const (
	// ModeAuto: Sentinel if a URL has a master_name, a cluster if there are several URLs or the one server says that it is in a cluster,
	// else one server. The default.
	ModeAuto Mode = "auto"
	// ModeStandalone: one server.
	ModeStandalone Mode = "standalone"
	// ModeSentinel: the URLs are of sentinels, which know the primary.
	ModeSentinel Mode = "sentinel"
	// ModeCluster: the URLs are of some nodes of a cluster, which know the others.
	ModeCluster Mode = "cluster"
)

// Options say where the buckets are and how to get there. URLs is required.
type Options struct {
	// URLs of the server, or of several sentinels or cluster nodes:
	//
	//	redis://[user[:password]@]host[:port][/db][?master_name=NAME]
	//	rediss://…                             the same with TLS
	//	unix://[user[:password]@]/path/to.sock[?db=N]
	//
	// The user name and the password may contain any character but % as it is; % is written %25, and every escape of that kind is
	// understood. All URLs must agree in all but the address.
	URLs []string
	Mode Mode
	// PoolSize is how many connections there are to each node: one for each of PoolSize-1 workers, and one more by which a cluster's node
	// is asked for the slots. Two workers do: the next batch gathers while one is on its way, for 0.3 ms at most; then it goes by
	// another connection. Default 3, at least 2.
	PoolSize int
	// Timeout is how long a caller waits at most. If its context ends sooner, it waits a little less than until then (a quarter of the time,
	// at most 5 ms), so that there is an answer before. Default 5 ms.
	Timeout time.Duration
	// ConnectionTimeout is how long a connection may be silent before it is given up, and what was sent on it with it. It is longer than
	// Timeout, so that a slow node does not cause a storm of new connections. Default 250 ms, or Timeout if that is more.
	ConnectionTimeout time.Duration

	// Username of an ACL user. Wins over the URLs' one.
	Username string
	// PasswordFile has the password, which is read for each new connection, so that it can be changed at any time. White space around it
	// is dropped. Not together with a password in the URLs.
	PasswordFile string
	// SentinelPasswordFile has the password for the sentinels, which is read at the start. Not together with sentinel_password in the URLs.
	SentinelPasswordFile string
	// TLS is used with rediss:// URLs only.
	TLS TLSOptions

	// OnCall, if set, is told of each script call that was answered, before Acquire returns. It must not keep the Call.
	OnCall func(*Call)
	// OnLate, if set, is told of each script call whose reply came when nobody waited for it any more. Buckets and Results may be kept. One of
	// the node's workers calls it, and waits for it.
	OnLate func(*Call)
	// OnFailure, if set, is told of each script call that was not, with an undo that failed among them.
	OnFailure func(*Failure)
	// OnUndo, if set, is told which takes are about to be given back, since a bucket in another slot denied. Nothing of it may be kept.
	OnUndo func([]ratelimit.Bucket)
	// OnMaxMemoryPolicy, if set, is told a node's maxmemory-policy after connecting to it, if the node tells: any but noeviction may
	// forget buckets. It is called by one of the node's workers, which waits for it.
	OnMaxMemoryPolicy func(node, policy string)
	// OnReload, if set, is told when the cluster's slots are asked for anew because of what a node said or failed to say.
	OnReload func(Reason)
}

// TLSOptions are files in PEM form. The zero value trusts the system's certificates and shows none. The files are read for each new
// connection, so that they can be renewed at any time; files that cannot be used leave the old ones in force.
type TLSOptions struct {
	CAFile string // whose certificates are trusted instead of the system's
	// CertFile and KeyFile are shown to the server.
	CertFile, KeyFile string
	// OnReload, if set, is told once when other files have come into force (nil), and once why files cannot be used. A connection that is being
	// made waits for it.
	OnReload func(error)
	// ServerName is what the server's certificate must be for. Default: the host of the address.
	ServerName string
}

// Call is a script call that was answered: some buckets of an Acquire, all in one slot.
type Call struct {
	Node    string    // address
	Queued  time.Time // when it was ready to be sent: no later than the decision
	Took    time.Duration
	Merged  bool               // no run of the script of its own: one for an identical call decided this one, too
	Buckets []ratelimit.Bucket // of the whole Acquire (a late call has its own only) …
	Results []ratelimit.Result // … and what is known of them so far
	At      []int              // those that this call is about
}

// Failure is a script call that was not answered, or by an error.
type Failure struct {
	Error *Error
	Took  time.Duration
	Undo  bool // it was to give back what a denied request took: that is lost now
}

// DefaultTimeout is what Options.Timeout is if not set.
const DefaultTimeout = 5 * time.Millisecond

const (
	defaultPoolSize          = 3
	defaultConnectionTimeout = 250 * time.Millisecond
	dialTimeout              = 100 * time.Millisecond
)

// withDefaults fills in what is not set and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if o.PoolSize == 0 {
		o.PoolSize = defaultPoolSize
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.ConnectionTimeout == 0 {
		o.ConnectionTimeout = max(defaultConnectionTimeout, o.Timeout)
	}
	if o.OnCall == nil {
		o.OnCall = func(*Call) {}
	}
	if o.OnLate == nil {
		o.OnLate = func(*Call) {}
	}
	if o.OnFailure == nil {
		o.OnFailure = func(*Failure) {}
	}
	if o.OnUndo == nil {
		o.OnUndo = func([]ratelimit.Bucket) {}
	}
	if o.OnReload == nil {
		o.OnReload = func(Reason) {}
	}
	return o, o.check()
}

func (o *Options) check() error {
	var faults []error
	switch o.Mode {
	case ModeAuto, ModeStandalone, ModeSentinel, ModeCluster:
	default:
		faults = append(faults, fmt.Errorf("unknown mode %q: want auto, standalone, sentinel or cluster", string(o.Mode)))
	}
	if o.PoolSize < 2 {
		faults = append(faults, fmt.Errorf("a pool of %d connections: want at least 2", o.PoolSize))
	}
	if o.Timeout < 0 || o.ConnectionTimeout < o.Timeout {
		faults = append(faults, fmt.Errorf("a timeout of %v with %v for the connection: want both positive, the latter no shorter",
			o.Timeout, o.ConnectionTimeout))
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		faults = append(faults, errors.New("a client certificate needs both its file and that of its key"))
	}
	return errors.Join(faults...)
}

// workers is how many batches can be on their way to one node.
func (o *Options) workers() int { return o.PoolSize - 1 }
