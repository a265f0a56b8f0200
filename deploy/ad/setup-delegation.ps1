<#
.SYNOPSIS
Sets Active Directory up for the bridge: its accounts, the delegation list, and who is never impersonated.

.DESCRIPTION
Run it on a machine with the ActiveDirectory module, as a domain administrator. With -WhatIf it says what it would do.
Done twice it changes nothing the second time.

Targets is a file with a service/host on each line, as "deploy/kdc/setup-delegation --print-targets clusters.toml" prints
them; each must be the service principal name of some account already. Never are more accounts that must never be
impersonated, besides the members of Domain Admins and Enterprise Admins and the bridge's own HTTP service.

.EXAMPLE
.\setup-delegation.ps1 -Bridge bridge.example.org -Realm EXAMPLE.ORG -Targets .\targets.txt -Keytabs C:\keytabs -WhatIf
#>
[CmdletBinding(SupportsShouldProcess = $true)]
param(
    [Parameter(Mandatory = $true)] [ValidatePattern('^[a-z0-9.-]+$')] [string] $Bridge,
    [Parameter(Mandatory = $true)] [ValidatePattern('^[A-Z0-9.-]+$')] [string] $Realm,
    [Parameter(Mandatory = $true)] [ValidateScript({ Test-Path -Path $_ -PathType Leaf })] [string] $Targets,
    [string[]] $Never = @(),
    [int] $MaxLifeMinutes = 180,
    [string] $Keytabs = ''
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module ActiveDirectory

$wanted = @(Get-Content -Path $Targets | Where-Object { $_ -ne '' })
foreach ($name in $wanted) {
    if ($name -cnotmatch '^[A-Za-z][A-Za-z0-9_-]*/[a-z0-9.-]+$') { throw "not a service/host: $name" }
    if (-not (Get-ADObject -Filter "servicePrincipalName -eq '$name'")) { throw "no account has the service name $name" }
}
if ($wanted.Count -eq 0) { throw "$Targets names no service" }

# One account for each keytab. The user principal name is the service's, so that the keytab's principal can log in.
$accounts = @(
    @{ Name = 'ci-bridge'; Service = "ci-bridge/$Bridge"; File = 'bridge.keytab' },
    @{ Name = 'ci-bridge-http'; Service = "HTTP/$Bridge"; File = 'http.keytab' }
)
foreach ($account in $accounts) {
    $name = $account.Name
    $principal = "$($account.Service)@$Realm"
    if (-not (Get-ADUser -Filter "sAMAccountName -eq '$name'")) {
        if ($PSCmdlet.ShouldProcess($name, 'New-ADUser')) {
            # A password nobody knows; ktpass sets another one when it makes the keytab.
            $bytes = New-Object byte[] 48
            [Security.Cryptography.RandomNumberGenerator]::Create().GetBytes($bytes)
            $password = ConvertTo-SecureString -String ([Convert]::ToBase64String($bytes)) -AsPlainText -Force
            New-ADUser -Name $name -SamAccountName $name -UserPrincipalName $principal -AccountPassword $password `
                -PasswordNeverExpires $true -CannotChangePassword $true -Enabled $true `
                -Description 'Secure CI runner bridge; see docs/kdc.md'
        }
    }
    if ($PSCmdlet.ShouldProcess($name, "service name $($account.Service), AES only")) {
        Set-ADUser -Identity $name -ServicePrincipalNames @{ Add = $account.Service }
        Set-ADUser -Identity $name -UserPrincipalName $principal -KerberosEncryptionType @('AES128', 'AES256')
    }
}

# Exactly the services of the file, by any authentication protocol (S4U2Self), and no unconstrained delegation.
if ($PSCmdlet.ShouldProcess('ci-bridge', "msDS-AllowedToDelegateTo = $($wanted -join ', ')")) {
    Set-ADUser -Identity 'ci-bridge' -Replace @{ 'msDS-AllowedToDelegateTo' = [string[]] $wanted }
    Set-ADAccountControl -Identity 'ci-bridge' -TrustedForDelegation $false -TrustedToAuthForDelegation $true `
        -AccountNotDelegated $false -DoesNotRequirePreAuth $false
}

# "Account is sensitive and cannot be delegated": the KDC makes no forwardable ticket in these names. Domain Admins (512)
# and Enterprise Admins (519, in a forest's first domain only) by number: their names are translated.
$domain = (Get-ADDomain).DomainSID.Value
$groups = @(Get-ADGroup -Filter "objectSid -eq '$domain-512' -or objectSid -eq '$domain-519'")
if ($groups.Count -eq 0) { throw 'this reader does not see the group of the domain administrators' }
$privileged = @($groups | Get-ADGroupMember -Recursive | Where-Object { $_.objectClass -eq 'user' } |
    Select-Object -ExpandProperty SamAccountName)
foreach ($name in ($privileged + @('ci-bridge-http') + $Never | Sort-Object -Unique)) {
    if ($PSCmdlet.ShouldProcess($name, 'Set-ADAccountControl -AccountNotDelegated $true')) {
        Set-ADAccountControl -Identity $name -AccountNotDelegated $true
    }
}

# The life of the bridge's own tickets bounds that of everything it gets (needs domain functional level 2012 R2).
if (-not (Get-ADAuthenticationPolicy -Filter "Name -eq 'ci-bridge'")) {
    if ($PSCmdlet.ShouldProcess('ci-bridge', "authentication policy, $MaxLifeMinutes minutes")) {
        New-ADAuthenticationPolicy -Name 'ci-bridge' -UserTGTLifetimeMins $MaxLifeMinutes -Enforce
    }
}
if ($PSCmdlet.ShouldProcess('ci-bridge', "tickets of $MaxLifeMinutes minutes")) {
    Set-ADAuthenticationPolicy -Identity 'ci-bridge' -UserTGTLifetimeMins $MaxLifeMinutes -Enforce $true
    Set-ADUser -Identity 'ci-bridge' -AuthenticationPolicy 'ci-bridge'
}

# ktpass sets a new password each time: an old keytab is stale afterwards. So only into an empty place.
if ($Keytabs -ne '') {
    if (-not (Test-Path -Path $Keytabs) -and $PSCmdlet.ShouldProcess($Keytabs, 'New-Item')) {
        New-Item -Path $Keytabs -ItemType Directory | Out-Null
    }
    foreach ($account in $accounts) {
        $file = Join-Path -Path $Keytabs -ChildPath $account.File
        if (Test-Path -Path $file) { Write-Output "kept: $file"; continue }
        if ($PSCmdlet.ShouldProcess($file, 'ktpass')) {
            & ktpass.exe -princ "$($account.Service)@$Realm" -mapuser "$($account.Name)" -mapop set `
                -crypto AES256-SHA1 -ptype KRB5_NT_PRINCIPAL +rndPass -out $file
            if ($LASTEXITCODE -ne 0) { throw "ktpass ended with $LASTEXITCODE" }
        }
    }
}
