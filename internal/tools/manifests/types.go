package manifests

// These types are the parts of Kubernetes' objects that the manifests use, in the order in which they are printed. The
// modules of Kubernetes have all parts, but would make the program larger by half.

type object[S any] struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Type       string            `yaml:",omitempty"` // of a Secret
	StringData map[string]string `yaml:"stringData,omitempty"`
	Spec       *S                `yaml:",omitempty"`
}

type metadata struct {
	Name        string            `yaml:",omitempty"`
	Namespace   string            `yaml:",omitempty"`
	Labels      map[string]string `yaml:",omitempty"`
	Annotations map[string]string `yaml:",omitempty"`
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type none struct{}

type serviceSpec struct {
	ClusterIP       string `yaml:"clusterIP"`
	PublishNotReady bool   `yaml:"publishNotReadyAddresses"`
	Selector        map[string]string
	Ports           []servicePort
}

type servicePort struct {
	Name string
	Port int
}

type policySpec struct {
	PodSelector selector `yaml:"podSelector"`
	PolicyTypes []string `yaml:"policyTypes"`
	Ingress     []ingress
}

type ingress struct {
	From  []peer       `yaml:",omitempty"`
	Ports []policyPort `yaml:",omitempty"`
}

type policyPort struct{ Port int }

type peer struct {
	PodSelector selector `yaml:"podSelector"`
}

type budgetSpec struct {
	MinAvailable int `yaml:"minAvailable"`
	Selector     selector
}

type jobSpec struct {
	Completions      int
	Parallelism      int
	CompletionMode   string      `yaml:"completionMode"`
	BackoffLimit     *int        `yaml:"backoffLimit,omitempty"`
	BackoffPerIndex  *int        `yaml:"backoffLimitPerIndex,omitempty"`
	PodFailurePolicy *podFailure `yaml:"podFailurePolicy,omitempty"`
	SuccessPolicy    *success    `yaml:"successPolicy,omitempty"`
	Template         podTemplate
}

type success struct{ Rules []successRule }

type successRule struct {
	SucceededIndexes string `yaml:"succeededIndexes"`
}

type podFailure struct{ Rules []podFailureRule }

type podFailureRule struct {
	Action          string
	OnExitCodes     *exitCodes     `yaml:"onExitCodes,omitempty"`
	OnPodConditions []podCondition `yaml:"onPodConditions,omitempty"`
}

type exitCodes struct {
	ContainerName string `yaml:"containerName"`
	Operator      string
	Values        []int `yaml:",flow"`
}

type podCondition struct{ Type, Status string }

type jobSetSpec struct {
	FailurePolicy  *maxRestarts    `yaml:"failurePolicy,omitempty"`
	Network        *jobSetNetwork  `yaml:",omitempty"`
	ReplicatedJobs []replicatedJob `yaml:"replicatedJobs"`
}

type maxRestarts struct {
	MaxRestarts int `yaml:"maxRestarts"`
}

type jobSetNetwork struct {
	EnableDNSHostnames bool   `yaml:"enableDNSHostnames"`
	PublishNotReady    bool   `yaml:"publishNotReadyAddresses"`
	Subdomain          string `yaml:",omitempty"`
}

type replicatedJob struct {
	Name     string
	Replicas int `yaml:",omitempty"`
	Template jobTemplate
}

type jobTemplate struct {
	Metadata *metadata `yaml:",omitempty"`
	Spec     any       // *jobSpec or runtimeJobSpec
}

// runtimeJobSpec is a runtime's part of its Job; TrainJobs have the rest.
type runtimeJobSpec struct {
	BackoffLimit int `yaml:"backoffLimit"`
	Template     podTemplate
}

type mpiJobSpec struct {
	SlotsPerWorker   int       `yaml:"slotsPerWorker"`
	SSHKeys          string    `yaml:"sshAuthMountPath,omitempty"`
	LauncherCreation string    `yaml:"launcherCreationPolicy"`
	RunPolicy        runPolicy `yaml:"runPolicy"`
	Replicas         mpiPods   `yaml:"mpiReplicaSpecs"`
}

type runPolicy struct {
	CleanPodPolicy string `yaml:"cleanPodPolicy"`
	BackoffLimit   int    `yaml:"backoffLimit"`
}

type mpiPods struct {
	Launcher mpiReplicas `yaml:"Launcher"`
	Worker   mpiReplicas `yaml:"Worker"`
}

type mpiReplicas struct {
	Replicas int
	Template podTemplate
}

type runtimeSpec struct {
	MLPolicy mlPolicy `yaml:"mlPolicy"`
	Template jobSetTemplate
}

type mlPolicy struct {
	NumNodes int `yaml:"numNodes"`
	Torch    none
}

type jobSetTemplate struct{ Spec jobSetSpec }

type trainJobSpec struct {
	RuntimeRef reference `yaml:"runtimeRef"`
	Trainer    trainer
}

type reference struct{ Name, Kind string }

type trainer struct {
	Image          string
	Command        []string
	NumNodes       int `yaml:"numNodes"`
	NumProcPerNode int `yaml:"numProcPerNode,omitempty"`
	Env            []Env
	Resources      *resources `yaml:"resourcesPerNode,omitempty"`
}

type podTemplate struct {
	Metadata *metadata `yaml:",omitempty"`
	Spec     podSpec
}

type podSpec struct {
	Subdomain      string `yaml:",omitempty"`
	RestartPolicy  string `yaml:"restartPolicy,omitempty"`
	ServiceLinks   *bool  `yaml:"enableServiceLinks,omitempty"`
	AutomountToken *bool  `yaml:"automountServiceAccountToken,omitempty"`
	Grace          int    `yaml:"terminationGracePeriodSeconds,omitempty"`
	Containers     []container
	Volumes        []volume `yaml:",omitempty"`
}

type container struct {
	Name            string
	Image           string
	Command         []string         `yaml:",omitempty"`
	Env             []Env            `yaml:",omitempty"`
	Ports           []containerPort  `yaml:",omitempty"`
	Resources       *resources       `yaml:",omitempty"`
	Readiness       *probe           `yaml:"readinessProbe,omitempty"`
	Lifecycle       *lifecycle       `yaml:",omitempty"`
	SecurityContext *securityContext `yaml:"securityContext,omitempty"`
	Mounts          []mount          `yaml:"volumeMounts,omitempty"`
}

// Env is a variable of a container.
type Env struct {
	Name      string
	Value     string     `yaml:",omitempty"`
	ValueFrom *envSource `yaml:"valueFrom,omitempty"`
}

type envSource struct {
	SecretKey keySelector `yaml:"secretKeyRef"`
}

type keySelector struct{ Name, Key string }

type containerPort struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

type resources struct{ Limits map[string]string }

type probe struct {
	TCP    *tcpSocket `yaml:"tcpSocket,omitempty"`
	Period int        `yaml:"periodSeconds"`
}

type tcpSocket struct{ Port int }

type lifecycle struct {
	PreStop hook `yaml:"preStop"`
}

type hook struct{ Exec exec }

type exec struct {
	Command []string `yaml:",flow"`
}

type securityContext struct {
	AllowEscalation bool          `yaml:"allowPrivilegeEscalation"`
	Capabilities    *capabilities `yaml:",omitempty"`
	Seccomp         seccomp       `yaml:"seccompProfile"`
}

type capabilities struct {
	Drop []string `yaml:",flow"`
}

type seccomp struct{ Type string }

type mount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
	ReadOnly  bool   `yaml:"readOnly,omitempty"`
}

type volume struct {
	Name     string
	EmptyDir *emptyDir     `yaml:"emptyDir,omitempty"`
	Secret   *secretVolume `yaml:",omitempty"`
	Claim    *claim        `yaml:"persistentVolumeClaim,omitempty"`
}

type emptyDir struct{ Medium string }

type secretVolume struct {
	SecretName string `yaml:"secretName"`
}

type claim struct {
	ClaimName string `yaml:"claimName"`
}
